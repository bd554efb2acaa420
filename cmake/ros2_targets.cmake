# SPDX-License-Identifier: Apache-2.0
# What every directory uses to name its targets: ros2_library, ros2_program, ros2_test, ros2_fuzz.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(OPENSSL REQUIRED IMPORTED_TARGET openssl>=3.0)
pkg_check_modules(GRPC REQUIRED IMPORTED_TARGET grpc gpr)
pkg_check_modules(PROTOBUFC REQUIRED IMPORTED_TARGET libprotobuf-c>=1.4)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3>=3.35)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing>=2.3)
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(VERBS REQUIRED IMPORTED_TARGET libibverbs librdmacm)
if(ROS2_TESTS)
	pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
endif()

# For systems whose own libraries have other versions (preset static). What has no archive in Debian stays as it is and is named
# in the feature summary; so do libc, and libibverbs, whose drivers are plugins of the system's.
function(ros2_link_statically module)
	set(link)
	foreach(lib ${${module}_STATIC_LIBRARIES} ${ARGN})
		if(NOT lib MATCHES "^(c|m|dl|rt|pthread)$")
			execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=lib${lib}.a
				OUTPUT_VARIABLE archive OUTPUT_STRIP_TRAILING_WHITESPACE)
			if(IS_ABSOLUTE "${archive}")
				list(APPEND link ${archive})
			else()
				set_property(GLOBAL APPEND PROPERTY ROS2_NOT_STATIC ${lib})
				list(APPEND link ${lib})
			endif()
		endif()
	endforeach()
	set_property(TARGET PkgConfig::${module} PROPERTY INTERFACE_LINK_LIBRARIES ${link} ${CMAKE_DL_LIBS} m)
	set_property(TARGET PkgConfig::${module} PROPERTY INTERFACE_LINK_OPTIONS -static-libgcc)
endfunction()
if(ROS2_STATIC_LIBS)
	foreach(module OPENSSL PROTOBUFC SQLITE YAML JANSSON URING)
		ros2_link_statically(${module})
	endforeach()
	ros2_link_statically(GRPC stdc++)
	set_property(GLOBAL APPEND PROPERTY ROS2_NOT_STATIC isal microhttpd)
endif()

add_library(ros2_flags INTERFACE)
target_include_directories(ros2_flags INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
target_compile_definitions(ros2_flags INTERFACE _GNU_SOURCE ROS2_VERSION_STRING="${PROJECT_VERSION}")
target_compile_options(ros2_flags INTERFACE
	-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Wvla -Wpointer-arith -Wwrite-strings
	-fno-strict-aliasing -fstack-protector-strong -fno-omit-frame-pointer
	-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=
	$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition>)
if(ROS2_WERROR)
	target_compile_options(ros2_flags INTERFACE -Werror)
endif()
if(ROS2_SANITIZE)
	target_compile_options(ros2_flags INTERFACE -fsanitize=${ROS2_SANITIZE}
		-fno-sanitize-recover=all)
	target_link_options(ros2_flags INTERFACE -fsanitize=${ROS2_SANITIZE})
endif()
if(ROS2_FUZZ)
	target_compile_options(ros2_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# ros2_library(NAME SOURCES a.c b.c [PUBLIC lib ...] [PRIVATE lib ...])
function(ros2_library name)
	cmake_parse_arguments(L "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
	add_library(${name} STATIC ${L_SOURCES})
	target_link_libraries(${name} PUBLIC ros2_flags ${L_PUBLIC} PRIVATE ${L_PRIVATE})
endfunction()

# In a cross build: emulated/DIR/NAME starts it under the emulator, for scripts that start it by name.
function(ros2_emulated name dir)
	if(CMAKE_CROSSCOMPILING AND CMAKE_CROSSCOMPILING_EMULATOR)
		file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/emulated/${dir}/${name}
			CONTENT "#!/bin/sh\nexec ${CMAKE_CROSSCOMPILING_EMULATOR} -0 ${name} $<TARGET_FILE:${name}> \"$@\"\n"
			FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
	endif()
endfunction()
set(ROS2_RUN_FROM ${CMAKE_BINARY_DIR})
if(CMAKE_CROSSCOMPILING)
	set(ROS2_RUN_FROM ${CMAKE_BINARY_DIR}/emulated)
endif()

# ros2_count_calls(NAME): what this test's reactor threads allocate and lock is counted (tests/bench/steady/count_calls.c among
# its sources), in code that is linked statically.
function(ros2_count_calls name)
	target_compile_definitions(${name} PRIVATE COUNT_CALLS_WRAP)
	foreach(f malloc calloc realloc reallocarray aligned_alloc posix_memalign free pthread_setname_np
			pthread_mutex_lock pthread_mutex_trylock pthread_rwlock_rdlock pthread_rwlock_wrlock
			pthread_spin_lock pthread_cond_wait pthread_cond_timedwait sem_wait)
		target_link_options(${name} PRIVATE -Wl,--wrap=${f})
	endforeach()
endfunction()

# ros2_program(NAME SOURCES main.c LIBS lib ... [PACKAGE component]): lands in build/<preset>/bin; the component is a Debian
# package (ros2_deb.cmake).
function(ros2_program name)
	cmake_parse_arguments(P "NO_INSTALL" "PACKAGE" "SOURCES;LIBS" ${ARGN})
	add_executable(${name} ${P_SOURCES})
	target_link_libraries(${name} PRIVATE ros2_flags ${P_LIBS})
	if(ROS2_STATIC_LIBS)
		target_sources(${name} PRIVATE $<TARGET_OBJECTS:ros2_arc4random>)
	endif()
	ros2_emulated(${name} bin)
	if(NOT P_NO_INSTALL)
		install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${P_PACKAGE})
	endif()
endfunction()

# Emulated, these have deadlines that a neighbour would make too short.
if(CMAKE_CROSSCOMPILING)
	set(ROS2_SERIAL_EMULATED test_rpc_stream test_rpc_tls controller_store_crash agent_service)
endif()

# What the sanitizers must be told about libraries that are not ours; each line there says why.
set(ROS2_SANITIZER_ENV
	"LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/lsan.supp:print_suppressions=0"
	"TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp:halt_on_error=1")

# The limits of time are for what hangs: ten times what an entry takes on a machine as ours, so that none of them depends on a quick
# one. ThreadSanitizer gets more of them, and of what tests say about time.
set(ROS2_TEST_TIMEOUT 900)
set(ROS2_SCRIPT_TIMEOUT 1200)
set(ROS2_GUEST_PATIENCE 4)
set(ROS2_TIME_SCALE 1)
if(ROS2_SANITIZE STREQUAL "thread")
	set(ROS2_TIME_SCALE 3)
endif()

# Seconds of the longest entries that ctest may run beside others: it begins with them, so that none of them is what all wait for at the end.
# Guests with two processors come before these, and those with one behind them: beside a guest of two, which is slower where processors
# are wanted by others, there is best what waits for files and timers.
# Cut power at every call (`tests/run --long`) takes half an hour, so these two begin early.
set(ROS2_LONG
	packages_install 78 controller_service_power 77 controller_store_power 76 hostile_refusals 66 controller_alloc_sweep 110 agent_start_sweep_dp 56 soak_controls 50 integration_nvmf 50 compat_self 46
	agent_start_sweep 46 hostile_garbage_wire 41 nvmf_storm_test 37 integration_bad_disk 34 nvmf_hostile_engine_test 34
	controller_journal_power 33 integration_usage 33 integration_bench_faults 33 integration_certificates 33 integration_isolation 31
	agent_service 30 integration_leases 28 integration_restart 27 controller_service_link 25 controller_service_faults 24
	agent_revoke_full 24 controller_journal_beyond 20 verbs_sweep_test 20 nvmf_recovery_test 20 nvmf_hostile_test 20)
# Emulated, these take from fifteen seconds to more than two minutes each, and have nothing in them of an architecture that the others have
# not: `tests/run --arm64 --long` runs them.
set(ROS2_EMULATED_LONG
	agent_revoke_full nvmf_hostile_test controller_pending agent_service_controls ctl_usage agent_service_crowd agent_bundles
	test_rpc_futile test_rpc_refuse verbs_sweep_test nvmf_rdma_queue_sweep_test nvmf_shm_lend_sweep_test agent_revoke_memory
	agent_service agent_service_contact fuzz_shm fuzz_wire common_fuzz_pki test_rpc_tls test_rpc_crowd nvmf_tcp_queue_sweep_test
	nvmf_engine_sweep_test nvmf_limits_sweep_test agent_probe_cli verbs_guest_cluster)
# ros2_begins(NAME OTHERWISE): its place in this order.
function(ros2_begins name otherwise)
	list(FIND ROS2_LONG ${name} at)
	if(at GREATER -1)
		math(EXPR at "${at} + 1")
		list(GET ROS2_LONG ${at} otherwise)
	endif()
	set_tests_properties(${name} PROPERTIES COST ${otherwise})
	if(CMAKE_CROSSCOMPILING AND name IN_LIST ROS2_EMULATED_LONG)
		set_property(TEST ${name} APPEND PROPERTY LABELS long)
	endif()
endfunction()

# ros2_test(NAME SOURCES a.c LIBS lib ... [LABELS unit] [TIMEOUT more seconds]): a cmocka program.
# Labels: unit, quick (both run by `tests/run --quick`), integration, fuzz, slow, long (only `tests/run --long` runs it).
function(ros2_test name)
	cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
	if(NOT T_LABELS)
		set(T_LABELS unit)
	endif()
	if(NOT T_TIMEOUT OR T_TIMEOUT LESS ROS2_TEST_TIMEOUT)
		set(T_TIMEOUT ${ROS2_TEST_TIMEOUT})
	endif()
	math(EXPR T_TIMEOUT "${T_TIMEOUT} * ${ROS2_TIME_SCALE}")
	add_executable(${name} ${T_SOURCES})
	set_target_properties(${name} PROPERTIES
		RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
	target_link_libraries(${name} PRIVATE ros2_flags ${T_LIBS} PkgConfig::CMOCKA)
	add_test(NAME ${name} COMMAND ${name})
	set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT}
		SKIP_RETURN_CODE 77 ENVIRONMENT "CMOCKA_MESSAGE_OUTPUT=TAP;${ROS2_SANITIZER_ENV}"
		WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
	if(CMAKE_CROSSCOMPILING)
		# of a long sweep of faults, some: the code is the same as on the machine where all are swept
		set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ROS2_EMULATED=1 ROS2_SWEEP_STRIDE=7 ROS2_POWER_ALL=0)
	endif()
	ros2_begins(${name} 0)
	if(name IN_LIST ROS2_SERIAL_EMULATED)
		set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
	endif()
endfunction()

# ros2_sweep(NAME kind ...): faults of these kinds of calls can be swept in the test (tests/sweep).
set(ROS2_SWEEP_uring io_uring_queue_init_params io_uring_register_eventfd io_uring_register_buffers
	io_uring_get_probe_ring io_uring_submit io_uring_peek_batch_cqe syscall)
set(ROS2_SWEEP_socket send sendmsg recv readv epoll_ctl)
set(ROS2_SWEEP_alloc malloc calloc realloc reallocarray aligned_alloc posix_memalign strdup strndup)
set(ROS2_SWEEP_fd socket eventfd epoll_create1 timerfd_create accept accept4 connect poll epoll_wait
	epoll_pwait2 bind listen getsockname)
set(ROS2_SWEEP_disk write pwrite fsync rename)
set(ROS2_SWEEP_start pthread_create mmap)
set(ROS2_SWEEP_read read pread)
set(ROS2_SWEEP_memfd memfd_create ftruncate fallocate fcntl)
function(ros2_sweep name)
	target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/sweep/sweep.c)
	foreach(kind ${ARGN})
		target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/sweep/sweep_${kind}.c)
		foreach(f ${ROS2_SWEEP_${kind}})
			target_link_options(${name} PRIVATE -Wl,--wrap=${f})
		endforeach()
	endforeach()
	if("uring" IN_LIST ARGN)
		target_link_libraries(${name} PRIVATE PkgConfig::URING)
	endif()
	if("sqlite" IN_LIST ARGN)
		target_link_libraries(${name} PRIVATE PkgConfig::SQLITE)
	endif()
endfunction()

# ros2_clock_ahead(NAME): the test can put the clock of rights forward (tests/clock_ahead.h).
function(ros2_clock_ahead name)
	target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/clock_ahead.c)
	target_link_options(${name} PRIVATE -Wl,--wrap=clock_boottime_ns)
endfunction()

# ros2_script_test(NAME SCRIPT path [LABELS integration] [TIMEOUT more seconds] [ALONE]): a script that prints TAP.
# It gets ROS2_BIN (the binaries) and ROS2_SRC (the source tree). ALONE on the machine is what measures time or rate.
function(ros2_script_test name)
	cmake_parse_arguments(T "ALONE" "TIMEOUT;SCRIPT" "LABELS" ${ARGN})
	if(NOT T_LABELS)
		set(T_LABELS integration)
	endif()
	if(NOT T_TIMEOUT OR T_TIMEOUT LESS ROS2_SCRIPT_TIMEOUT)
		set(T_TIMEOUT ${ROS2_SCRIPT_TIMEOUT})
	endif()
	math(EXPR T_TIMEOUT "${T_TIMEOUT} * ${ROS2_TIME_SCALE}")
	add_test(NAME ${name} COMMAND ${CMAKE_SOURCE_DIR}/${T_SCRIPT})
	set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT}
		SKIP_RETURN_CODE 77
		ENVIRONMENT "${ROS2_SANITIZER_ENV};ROS2_BIN=${ROS2_RUN_FROM}/bin;ROS2_SRC=${CMAKE_SOURCE_DIR};ROS2_TESTBIN=${ROS2_RUN_FROM}/tests;ROS2_BUILD=${CMAKE_BINARY_DIR};ROS2_TIME_SCALE=${ROS2_TIME_SCALE}"
		WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
	set_tests_properties(${name} PROPERTIES RUN_SERIAL "${T_ALONE}")
	ros2_begins(${name} 0)
endfunction()

# ros2_fuzz(NAME SOURCES f.c CORPUS dir LIBS lib ...): f.c defines LLVMFuzzerTestOneInput. With
# ROS2_FUZZ it is a libFuzzer program; otherwise a driver replays every file of the corpus as a test.
function(ros2_fuzz name)
	cmake_parse_arguments(F "" "CORPUS" "SOURCES;LIBS" ${ARGN})
	if(ROS2_FUZZ)
		add_executable(${name} ${F_SOURCES})
		target_link_options(${name} PRIVATE -fsanitize=fuzzer)
	else()
		add_executable(${name} ${F_SOURCES} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay.c)
	endif()
	set_target_properties(${name} PROPERTIES
		RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
	target_link_libraries(${name} PRIVATE ros2_flags ${F_LIBS})
	# Options of a source come after those of its target, so this one wins.
	set_source_files_properties(${F_SOURCES} PROPERTIES COMPILE_OPTIONS -Wno-missing-prototypes)
	if(ROS2_FUZZ)
		add_test(NAME ${name} COMMAND ${name} -runs=0 ${CMAKE_SOURCE_DIR}/${F_CORPUS})
	else()
		add_test(NAME ${name} COMMAND ${name} ${CMAKE_SOURCE_DIR}/${F_CORPUS})
	endif()
	set_tests_properties(${name} PROPERTIES LABELS "fuzz;unit" TIMEOUT ${ROS2_TEST_TIMEOUT})
	ros2_begins(${name} 0)
endfunction()

# ros2_guest_test(NAME COMMAND word ... [TARGETS target ...] [TIME_LIMIT seconds] [TOPOLOGY rxe|rxe2|none] [MODULES m ...]
#                 [MEMORY MiB] [CPUS 1|2] [ICOUNT] [MAY_PANIC] [SLOW] [LONG] [ARM64]): a command that prints TAP, run in a guest (tests/guest)
#                 from the source tree.
# TARGETS (programs of this build) are built in the preset `guest`, which is what runs there, first in PATH; in the preset arm64 it is that
# one itself, and the guest is of aarch64. Labels: rdma; with SLOW rdma-slow, which `tests/run --rdma-quick` leaves out; with LONG long,
# which only `tests/run --long` runs; what has ARM64 is also of `tests/run --arm64`. A guest computes all the time: for each of its processors it
# takes two lanes of ctest (emulated one of the three).
set(ROS2_GUEST_BUILD ${CMAKE_SOURCE_DIR}/build/guest)
set(ROS2_GUEST_MACHINE)
if(CMAKE_CROSSCOMPILING)
	set(ROS2_GUEST_BUILD ${CMAKE_BINARY_DIR})
	set(ROS2_GUEST_MACHINE --arm64)
endif()
function(ros2_guest_test name)
	cmake_parse_arguments(G "ICOUNT;MAY_PANIC;SLOW;LONG;ARM64" "TIME_LIMIT;TOPOLOGY;MEMORY;CPUS" "COMMAND;TARGETS;MODULES" ${ARGN})
	set(options --tap)
	if(NOT G_TIME_LIMIT)
		set(G_TIME_LIMIT 120)
	endif()
	math(EXPR G_TIME_LIMIT "${G_TIME_LIMIT} * ${ROS2_GUEST_PATIENCE}")
	list(APPEND options --time-limit ${G_TIME_LIMIT})
	if(G_TOPOLOGY)
		list(APPEND options --topology ${G_TOPOLOGY})
	endif()
	if(G_MEMORY)
		list(APPEND options --memory ${G_MEMORY})
	endif()
	if(G_MODULES)
		list(JOIN G_MODULES "," modules)
		list(APPEND options --modules ${modules})
	endif()
	if(G_CPUS)
		list(APPEND options --cpus ${G_CPUS})
	else()
		set(G_CPUS 1)
	endif()
	if(G_ICOUNT)
		list(APPEND options --icount)
	endif()
	if(G_MAY_PANIC)
		list(APPEND options --may-panic)
	endif()
	add_test(NAME ${name} COMMAND ${CMAKE_SOURCE_DIR}/tests/guest/run ${ROS2_GUEST_MACHINE} ${options} -- ${G_COMMAND})
	if(G_ARM64 AND CMAKE_CROSSCOMPILING) # what qemu-user cannot do, has no shorter one beside it
		set(G_LONG FALSE)
	endif()
	ros2_in_guest(${name} ${G_TIME_LIMIT} "${G_SLOW}" "${G_LONG}" ${G_TARGETS})
	set(lanes ${G_CPUS})
	if(NOT CMAKE_CROSSCOMPILING) # there everything computes all the time
		math(EXPR lanes "2 * ${G_CPUS}")
	endif()
	set_tests_properties(${name} PROPERTIES PROCESSORS ${lanes})
	if(G_CPUS GREATER 1) # first: where one lane is free at a time they would find no room before the end
		ros2_begins(${name} 1000)
	endif()
	if(G_ARM64 AND CMAKE_CROSSCOMPILING)
		set_property(TEST ${name} APPEND PROPERTY LABELS quick)
	endif()
endfunction()

# ros2_guest_script(NAME SCRIPT path [TARGETS target ...] [TIME_LIMIT seconds] [SLOW] [LONG]): a script that prints TAP, runs here and
# starts guests itself.
function(ros2_guest_script name)
	cmake_parse_arguments(G "SLOW;LONG" "SCRIPT;TIME_LIMIT" "TARGETS" ${ARGN})
	add_test(NAME ${name} COMMAND ${CMAKE_SOURCE_DIR}/${G_SCRIPT} ${ROS2_GUEST_MACHINE})
	math(EXPR G_TIME_LIMIT "${G_TIME_LIMIT} * ${ROS2_GUEST_PATIENCE}")
	ros2_in_guest(${name} ${G_TIME_LIMIT} "${G_SLOW}" "${G_LONG}" ${G_TARGETS})
endfunction()

function(ros2_in_guest name limit slow long)
	math(EXPR timeout "${limit} + 60")
	set(labels rdma)
	if(slow)
		list(APPEND labels rdma-slow)
	endif()
	if(long)
		list(APPEND labels long)
	endif()
	set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout}
		FIXTURES_REQUIRED guest_programs SKIP_RETURN_CODE 77 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
		ENVIRONMENT "CMOCKA_MESSAGE_OUTPUT=TAP;ROS2_BIN=${ROS2_GUEST_BUILD}/bin;ROS2_SRC=${CMAKE_SOURCE_DIR};ROS2_TESTBIN=${ROS2_GUEST_BUILD}/tests")
	ros2_begins(${name} 10)
	if(ARGN)
		set_property(GLOBAL APPEND PROPERTY ROS2_GUEST_TARGETS ${ARGN})
	endif()
endfunction()

# What `guest_programs` builds, when every directory has said what its guest tests need.
function(ros2_guest_programs)
	get_property(targets GLOBAL PROPERTY ROS2_GUEST_TARGETS)
	add_custom_target(guest_programs)
	if(targets)
		list(REMOVE_DUPLICATES targets)
		add_dependencies(guest_programs ${targets})
	endif()
endfunction()

function(ros2_feature_summary)
	message(STATUS "")
	message(STATUS "ros2 ${PROJECT_VERSION}: ${CMAKE_BUILD_TYPE}, ${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}")
	message(STATUS "  sanitizers   ${ROS2_SANITIZE}")
	message(STATUS "  tests        ${ROS2_TESTS} (fuzz targets: ${ROS2_FUZZ})")
	message(STATUS "  grpc core    ${GRPC_grpc_VERSION}")
	if(ROS2_STATIC_LIBS)
		get_property(not_static GLOBAL PROPERTY ROS2_NOT_STATIC)
		list(REMOVE_DUPLICATES not_static)
		list(JOIN not_static " " not_static)
		message(STATUS "  libraries    static, but: ${not_static}")
	endif()
	message(STATUS "  transports   tcp, verbs, shm")
	message(STATUS "  engines      mem, file (io_uring ${URING_VERSION})")
	message(STATUS "")
endfunction()
