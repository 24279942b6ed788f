# Memory control groups, versions 1 and 2. Source this file; it defines functions only.

# Makes a group with a limit and prints its folder: cgroup_make NAME MIB
cgroup_make() {
    local name=$1 bytes=$(($2 * 1024 * 1024)) root folder
    if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
        root=/sys/fs/cgroup
        echo +memory >"$root/cgroup.subtree_control" 2>/dev/null || true
        folder=$root/$name
        mkdir "$folder" && echo "$bytes" >"$folder/memory.max" || return 1
        echo 0 >"$folder/memory.swap.max" 2>/dev/null || true
    elif [ -d /sys/fs/cgroup/memory ]; then
        folder=/sys/fs/cgroup/memory/$name
        mkdir "$folder" && echo "$bytes" >"$folder/memory.limit_in_bytes" || return 1
        echo "$bytes" >"$folder/memory.memsw.limit_in_bytes" 2>/dev/null || true
        # Version 2 counts sockets, too. This makes version 1 count them, by themselves.
        echo $((64 << 30)) >"$folder/memory.kmem.tcp.limit_in_bytes" 2>/dev/null || true
    else
        return 1
    fi
    printf '%s\n' "$folder"
}

# Prints the bytes that a group uses, page cache included.
cgroup_usage() {
    cat "$1/memory.current" 2>/dev/null || cat "$1/memory.usage_in_bytes"
}

# Prints how often the kernel killed a process of the group for its memory.
cgroup_oom_kills() {
    awk '$1 == "oom_kill" { print $2; found = 1 } END { if (!found) print 0 }' \
        "$1/memory.events" 2>/dev/null ||
        awk '$1 == "oom_kill" { print $2; found = 1 } END { if (!found) print 0 }' \
            "$1/memory.oom_control"
}

# Runs a command in a group, with the same process id: cgroup_exec FOLDER COMMAND...
# Use it in the background or from a subshell: it does not return.
cgroup_exec() {
    local folder=$1
    shift
    echo "$BASHPID" >"$folder/cgroup.procs"
    exec "$@"
}

# Removes a group whose processes have ended.
cgroup_remove() {
    local tries
    for tries in 1 2 3 4 5 6 7 8 9 10; do
        rmdir "$1" 2>/dev/null && return
        sleep 0.2
    done
}
