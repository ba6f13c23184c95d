#!/bin/sh
# Checks of strongbox on pure cgroup v2. Each prints `ok NAME` or `not ok NAME`; the last line is the suite's result.
passed=0
failed=0
output=/tmp/output

# verdict NAME STATUS: records one check. When it failed, what the last command wrote is shown.
verdict() {
    if [ "$2" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok $1"
    else
        failed=$((failed + 1))
        echo "not ok $1"
        sed 's/^/    /' "$output"
    fi
}

# exits CODE COMMAND…: succeeds when the command ends with just this code.
exits() {
    expected=$1
    shift
    "$@" > "$output" 2>&1 < /dev/null
    code=$?
    [ "$code" -eq "$expected" ] && return 0
    echo "exit code $code instead of $expected" >> "$output"
    return 1
}

# says WORDS: succeeds when the last command wrote these words, in any case.
says() {
    grep -qi -- "$1" "$output" && return 0
    echo "nowhere written: $1" >> "$output"
    return 1
}

# within SECONDS COMMAND…: succeeds when the command does, at once or after some tries.
within() {
    tries=$(($1 * 5))
    shift
    while [ "$tries" -gt 0 ]; do
        "$@" && return 0
        sleep 0.2
        tries=$((tries - 1))
    done
    return 1
}

run_succeeds() { exits 0 strongbox run -- true; }

exit_code_is_passed_through() { exits 7 strongbox run -- sh -c 'exit 7'; }

doctor_finds_the_unified_hierarchy() {
    exits 0 strongbox doctor --json || return 1
    tr '{' '\n' < "$output" | grep '"name":"cgroups"' | grep '"state":"good"' | grep -qiE '"detail":"(v2|unified)'
}

memory_hog_is_killed_and_reported() {
    exits 137 strongbox run --memory 64 --timeout 60 -- tail /dev/zero && says 'out of memory'
}

# Forty children, all at once. The shell stops with an error when it cannot fork.
forty_children='i=0; while [ $i -lt 40 ]; do sleep 3 & i=$((i + 1)); done; wait; echo had forty'

processes_within_the_limit_are_allowed() {
    exits 0 strongbox run --pids 100 --timeout 60 -- sh -c "$forty_children" && says 'had forty'
}

processes_beyond_the_limit_are_refused() {
    strongbox run --pids 20 --timeout 60 -- sh -c "$forty_children" > "$output" 2>&1 < /dev/null
    says "can't fork" && ! grep -q 'had forty' "$output"
}

# sleepers: prints the processes that are left of the tree below. `ps` of busybox would cut their command lines.
sleepers() {
    for process in /proc/[0-9]*; do
        tr '\0' ' ' < "$process/cmdline" 2> /dev/null | grep -q '^sleep 98765' && echo "left: ${process#/proc/}"
    done
}

no_sleeper() { [ -z "$(sleepers)" ]; }

timeout_ends_the_whole_tree() {
    tree='trap "" TERM; (setsid sleep 98765 &) ; sleep 98765 & sleep 98765'
    exits 124 strongbox run --timeout 2 -- sh -c "$tree" || return 1
    within 2 no_sleeper && return 0
    sleepers >> "$output"
    return 1
}

disk_limit_is_hard() {
    strongbox run --disk 16 --timeout 60 -- dd if=/dev/zero of=/workspace/big bs=1M count=64 > "$output" 2>&1 < /dev/null
    says 'no space left'
}

disk_limit_on_ext4_is_hard() {
    strongbox run --keep-on-disk --disk 16 --timeout 60 -- dd if=/dev/zero of=/workspace/big bs=1M count=64 \
        > "$output" 2>&1 < /dev/null
    says 'no space left'
}

memory_limit_is_set() {
    find /sys/fs/cgroup -path '*strongbox*' -name memory.max -exec cat {} + 2> /dev/null | grep -qx $((64 << 20))
}

cpu_limit_is_set() {
    find /sys/fs/cgroup -path '*strongbox*' -name cpu.max -exec cat {} + 2> /dev/null | grep -q '^[0-9]'
}

limits_are_on_the_unified_hierarchy() {
    strongbox run --memory 64 --cpus 0.5 --timeout 30 -- sleep 8 > "$output" 2>&1 < /dev/null &
    box=$!
    within 6 memory_limit_is_set && within 1 cpu_limit_is_set
    status=$?
    wait "$box"
    return "$status"
}

nothing_there() {
    leftovers=$(
        find /sys/fs/cgroup -mindepth 2 -type d -path '/sys/fs/cgroup/strongbox*'
        grep strongbox /proc/self/mounts
        grep -H strongbox /proc/[0-9]*/comm 2> /dev/null
        cat /sys/block/loop*/loop/backing_file 2> /dev/null | grep strongbox
    )
    [ -z "$leftovers" ]
}

nothing_is_left() {
    within 5 nothing_there && return 0
    echo "$leftovers" > "$output"
    return 1
}

for check in run_succeeds exit_code_is_passed_through doctor_finds_the_unified_hierarchy \
    memory_hog_is_killed_and_reported processes_within_the_limit_are_allowed processes_beyond_the_limit_are_refused \
    timeout_ends_the_whole_tree disk_limit_is_hard disk_limit_on_ext4_is_hard \
    limits_are_on_the_unified_hierarchy nothing_is_left; do
    : > "$output"
    "$check"
    verdict "$check" $?
done
echo "suite-result: passed=$passed failed=$failed skipped=0"
