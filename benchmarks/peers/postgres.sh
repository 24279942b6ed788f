#!/usr/bin/env bash
# A PostgreSQL server for a benchmark: a cluster of its own, in a memory cgroup.
#
#   benchmarks/peers/postgres.sh start    install what is missing, make a cluster, start it, print its URI
#   benchmarks/peers/postgres.sh status   say whether it runs, its URI, settings and memory
#   benchmarks/peers/postgres.sh stop     stop it and remove its cgroup; --remove removes the data too
#
# Nothing of the machine's own PostgreSQL clusters is touched. Run it as root: the server itself runs as
# the user `postgres`. Another user may run it too, without a memory limit. From the environment:
#
#   DATA              .cache/peers/postgres   folder of the cluster; the server's user must be able to reach it
#   PORT              54329    port on 127.0.0.1
#   MEMORY_MIB        512      limit of the cgroup, page cache included; 0 for none
#   CONNECTIONS       320      max_connections
#   POSTGRES_OPTIONS           more settings, such as "wal_compression=off shared_buffers=200MB"
#   POSTGRES_BIN               folder of initdb and postgres [default: that of the newest Debian package]
#
# README.md beside this script says why each setting is what it is.
set -euo pipefail

usage() { sed -n '2,19s/^# \{0,1\}//p' "$0"; }
fail() { printf 'postgres.sh: %s\n' "$*" >&2; exit 1; }

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$root/scripts/lib/memory-cgroup.sh"

data=${DATA:-$root/.cache/peers/postgres}
port=${PORT:-54329}
memory_mib=${MEMORY_MIB:-512}
connections=${CONNECTIONS:-320}
read -ra more_settings <<<"${POSTGRES_OPTIONS:-}"
readonly role=bench

find_bin() {
    if [ -n "${POSTGRES_BIN:-}" ]; then
        printf '%s\n' "$POSTGRES_BIN"
    else
        # Sorted by version, so that 15 comes after 9.6.
        printf '%s\n' /usr/lib/postgresql/*/bin/postgres | sort -V | tail -1 | xargs dirname
    fi
}

# Runs a command as the server's user, with the same process id: as_server COMMAND...
as_server() {
    if [ "$(id -u)" -eq 0 ]; then
        exec setpriv --reuid=postgres --regid=postgres --init-groups -- "$@"
    fi
    exec "$@"
}

# The settings, a `name = value` on each line. README.md has the reasons.
settings() {
    local memory=$memory_mib
    if [ "$memory" -eq 0 ]; then
        memory=$(awk '$1 == "MemTotal:" { print int($2 / 1024) }' /proc/meminfo)
    fi
    local maintenance=$((memory / 16)) work=$((memory / 128)) checkpoint=4096
    [ "$maintenance" -le 1024 ] || maintenance=1024
    [ "$work" -ge 1 ] || work=1
    [ "$work" -le 64 ] || work=64
    cat <<SETTINGS
listen_addresses = '127.0.0.1'
port = $port
unix_socket_directories = '$data/socket'
unix_socket_permissions = 0700
max_connections = $connections
shared_buffers = $((memory / 4))MB
effective_cache_size = $((memory * 3 / 4))MB
maintenance_work_mem = ${maintenance}MB
work_mem = ${work}MB
wal_buffers = 16MB
huge_pages = off
synchronous_commit = off
wal_writer_delay = 100ms
full_page_writes = on
wal_compression = lz4
default_toast_compression = lz4
wal_level = minimal
max_wal_senders = 0
max_wal_size = ${checkpoint}MB
min_wal_size = 1GB
checkpoint_timeout = 15min
checkpoint_completion_target = 0.9
bgwriter_delay = 50ms
bgwriter_lru_maxpages = 1000
random_page_cost = 1.1
effective_io_concurrency = 200
autovacuum = on
jit = off
logging_collector = off
SETTINGS
    local setting
    for setting in "${more_settings[@]}"; do
        [[ $setting == *=* ]] || fail "POSTGRES_OPTIONS: $setting is no name=value"
        printf "%s = '%s'\n" "${setting%%=*}" "${setting#*=}"
    done
}

uri() { printf 'postgres://%s@127.0.0.1:%s/%s\n' "$role" "$1" "$role"; }

# The process id of the running server, or nothing.
server_pid() {
    local pid
    pid=$(head -1 "$data/cluster/postmaster.pid" 2>/dev/null) || return 0
    # After a crash the file stays, and the number may be somebody else's.
    [ "$(readlink "/proc/$pid/cwd" 2>/dev/null)" = "$(readlink -f "$data/cluster")" ] || return 0
    printf '%s\n' "$pid"
}

make_cluster() {
    local bin=$1 socket="$data/socket"
    mkdir -p "$data"
    data=$(cd "$data" && pwd)
    mkdir -p "$data/cluster" "$data/socket"
    chmod 755 "$data"
    [ "$(id -u)" -ne 0 ] || chown postgres: "$data/cluster" "$data/socket"
    chmod 700 "$data/cluster" "$data/socket"
    # The kernel bounds the path of a socket to 107 bytes.
    [ "${#socket}" -le 85 ] || fail "the path $data is too long for a socket: set DATA"
    (as_server test -r "$data/cluster") ||
        fail "the user postgres cannot reach $data: set DATA to a folder that others may enter"
    [ ! -f "$data/cluster/PG_VERSION" ] || return 0
    (as_server "$bin/initdb" --pgdata="$data/cluster" --username=postgres --encoding=UTF8 --locale=C.UTF-8 \
        --auth-local=trust --auth-host=reject --no-instructions --no-sync) >"$data/initdb.log" 2>&1 ||
        { cat "$data/initdb.log" >&2; fail "initdb failed"; }
    # The socket lies in a folder that only the server's user may enter. Over TCP there is one role, which
    # owns one database and may ask for checkpoints.
    cat >"$data/cluster/pg_hba.conf" <<HBA
local all all trust
host $role $role 127.0.0.1/32 trust
HBA
}

sql() { (as_server "$bin/psql" -X -q -A -t -v ON_ERROR_STOP=1 -h "$data/socket" -p "$port" -U postgres "$@"); }

start() {
    local bin
    [ -n "${POSTGRES_BIN:-}" ] || "$root/scripts/setup.sh" peers >&2
    bin=$(find_bin)
    [ -x "$bin/postgres" ] || fail "no PostgreSQL found: set POSTGRES_BIN"
    [ -z "$(server_pid)" ] || fail "a server runs in $data already"
    if [ "$memory_mib" -gt 0 ] && [ "$(id -u)" -ne 0 ]; then
        fail "no memory cgroup can be made here: run as root, or with MEMORY_MIB=0"
    fi
    make_cluster "$bin"
    settings >"$data/cluster/frond-bench.conf"
    grep -q frond-bench.conf "$data/cluster/postgresql.conf" ||
        echo "include 'frond-bench.conf'" >>"$data/cluster/postgresql.conf"

    local group=
    rm -f "$data/group"
    if [ "$memory_mib" -gt 0 ]; then
        group=$(cgroup_make "frond-postgres-$$" "$memory_mib") || fail "no memory cgroup can be made here"
        printf '%s\n' "$group" >"$data/group"
    fi
    (
        [ -z "$group" ] || echo "$BASHPID" >"$group/cgroup.procs"
        as_server setsid "$bin/postgres" -D "$data/cluster"
    ) >>"$data/server.log" 2>&1 </dev/null &
    local child=$! up=no
    for _ in $(seq 300); do
        kill -0 "$child" 2>/dev/null || break
        if sql -d postgres -c 'SELECT 1' >/dev/null 2>&1; then up=yes; break; fi
        sleep 0.1
    done
    if [ "$up" = no ]; then
        tail -20 "$data/server.log" >&2
        kill "$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
        [ -z "$group" ] || cgroup_remove "$group"
        fail "the server does not start"
    fi
    if [ -z "$(sql -d postgres -c "SELECT 1 FROM pg_roles WHERE rolname = '$role'")" ]; then
        sql -d postgres -c "CREATE ROLE $role LOGIN" -c "GRANT pg_checkpoint, pg_monitor TO $role" \
            -c "CREATE DATABASE $role OWNER $role"
    fi
    uri "$port"
}

status() {
    local pid bin group
    pid=$(server_pid)
    [ -n "$pid" ] || { echo "no server runs in $data"; return 3; }
    bin=$(dirname "$(readlink -f "/proc/$pid/exe")")
    port=$(sed -n 4p "$data/cluster/postmaster.pid")
    group=$(cat "$data/group" 2>/dev/null) || group=
    printf 'pid %s\nuri %s\ndata %s\n' "$pid" "$(uri "$port")" "$data"
    if [ -n "$group" ]; then
        printf 'group %s\nmemory_mib %s\nkilled_for_memory %s\n' "$group" \
            "$(($(cgroup_usage "$group") / 1048576))" "$(cgroup_oom_kills "$group")"
    fi
    sql -d "$role" -c "SELECT 'version ' || version()" -c "SELECT name || ' ' || current_setting(name)
        FROM pg_settings WHERE sourcefile LIKE '%/frond-bench.conf' ORDER BY name"
}

stop() {
    local remove=$1 pid group
    pid=$(server_pid)
    if [ -n "$pid" ]; then
        kill -INT "$pid" # the fast shutdown: open transactions are undone, and a checkpoint is made
        for _ in $(seq 1200); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        ! kill -0 "$pid" 2>/dev/null || fail "the server $pid does not end"
    fi
    group=$(cat "$data/group" 2>/dev/null) || group=
    if [ -n "$group" ] && [ -d "$group" ]; then cgroup_remove "$group"; fi
    rm -f "$data/group"
    [ "$remove" = yes ] || return 0
    rm -rf "$data/cluster" "$data/socket" "$data/initdb.log" "$data/server.log"
    rmdir "$data" 2>/dev/null || true
}

case "${1:-}" in
    start) [ $# -eq 1 ] || { usage >&2; exit 2; }; start ;;
    status) [ $# -eq 1 ] || { usage >&2; exit 2; }; status ;;
    stop)
        case "${2:-}" in
            '') stop no ;;
            --remove) stop yes ;;
            *) usage >&2; exit 2 ;;
        esac ;;
    -h | --help | help) usage ;;
    *) usage >&2; exit 2 ;;
esac
