# SPDX-License-Identifier: Apache-2.0
# Adds up the TAP of every ctest entry. Reads first ctest's console lines (how each entry ended), then its log (what each
# printed). Writes FAILED (names and output of what failed), SKIPPED, and AGAIN (what passed only when it was repeated, with
# what it printed before), and prints "PASSED FAILED SKIPPED".
#
# An entry that ended badly without a failing line of its own (a crash, a timeout, a leak report) is one failure more;
# so is one that ended well but printed fewer lines than it planned, or none. cmocka 1.1.5 prints a skipped test as
# `not ok N # SKIP name`, so a SKIP is looked for first. Of an entry that was repeated (ctest --repeat) the last time counts;
# but what ThreadSanitizer saw once is there, also when it does not see it again.

# "  3/10 Test  #3: common_ids ......   Passed    0.01 sec"
FILENAME == CONSOLE {
	if (match($0, /Test +#[0-9]+: [^ ]+ /)) {
		name = substr($0, RSTART, RLENGTH)
		sub(/Test +#[0-9]+: /, "", name)
		sub(/ +$/, "", name)
		rest = substr($0, RSTART + RLENGTH)
		sub(/^\.+/, "", rest)
		if (!(name in ended))
			order[++entries] = name
		ended[name] = rest
	}
	next
}

/^[0-9]+\/[0-9]+ Test: / {
	entry = $3
	if (entry in output)
		before[entry] = before[entry] output[entry]
	printing = 0
	output[entry] = skip_lines[entry] = ""
	planned[entry] = lines[entry] = skips[entry] = fails[entry] = 0
	next
}
/^Output:$/ && !printing { getline; printing = 1; next }
/^<end of output>$/ { printing = 0; next }
!printing { next }
{ output[entry] = output[entry] "    " $0 "\n" }
/^1\.\.[0-9]+/ { plan = $0; sub(/^1\.\./, "", plan); planned[entry] += plan + 0; next }
/^(not )?ok( |$)/ {
	lines[entry]++
	if ($0 ~ /# *[Ss][Kk][Ii][Pp]/) {
		skips[entry]++
		skip_lines[entry] = skip_lines[entry] entry ": " $0 "\n"
	} else if ($0 !~ /^ok/) {
		fails[entry]++
	}
}

function complain(name, why) {
	printf "--- %s: %s\n%s", name, why, output[name] >FAILED
}

END {
	for (i = 1; i <= entries; i++) {
		name = order[i]
		how = ended[name]
		good = how ~ /Passed/
		skipped += skips[name]
		failed += fails[name]
		passed += lines[name] - skips[name] - fails[name]
		if (skips[name])
			printf "%s", skip_lines[name] >SKIPPED
		if (how ~ /Skipped/) {
			if (!skips[name]) {
				skipped++
				print name ": " (output[name] ? output[name] : "no reason given") >SKIPPED
			}
		} else if (fails[name]) {
			complain(name, fails[name] " failed")
		} else if (!good) {
			failed++
			complain(name, "ended badly: " how)
		} else if (!lines[name] && NO_TAP_PASSES) {
			passed++
		} else if (!lines[name]) {
			failed++
			complain(name, "printed no result")
		} else if (lines[name] < planned[name]) {
			failed++
			complain(name, "planned " planned[name] " results, printed " lines[name])
		} else if (name in before && before[name] ~ /SUMMARY: ThreadSanitizer: /) {
			failed++
			output[name] = before[name]
			complain(name, "passed, but not the first time")
		} else if (name in before) {
			printf "--- %s: before it passed\n%s", name, before[name] >AGAIN
		}
	}
	print passed + 0, failed + 0, skipped + 0
}
