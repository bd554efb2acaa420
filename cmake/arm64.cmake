# SPDX-License-Identifier: Apache-2.0
# Toolchain file: aarch64 on another Debian machine, with Debian's cross compiler and the arm64 packages of
# tools/packages.arm64.txt installed beside the machine's own (multiarch). What cannot be installed beside is unpacked
# below build/arm64-root by tools/arm64-setup.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(ROS2_ARM64_ROOT ${CMAKE_CURRENT_LIST_DIR}/../build/arm64-root)
cmake_path(ABSOLUTE_PATH ROS2_ARM64_ROOT NORMALIZE)
set(PKG_CONFIG_EXECUTABLE /usr/bin/aarch64-linux-gnu-pkg-config)
set(ENV{PKG_CONFIG_PATH} ${ROS2_ARM64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig)
list(APPEND CMAKE_LIBRARY_PATH ${ROS2_ARM64_ROOT}/usr/lib/aarch64-linux-gnu)

# Tests and generators of the target run under it. -static: it needs nothing of the machine it runs on.
find_program(ROS2_QEMU_AARCH64 qemu-aarch64-static)
if(ROS2_QEMU_AARCH64)
	set(CMAKE_CROSSCOMPILING_EMULATOR ${ROS2_QEMU_AARCH64})
endif()
