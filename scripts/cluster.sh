#!/usr/bin/env bash
# A small TiKV cluster on this machine, for tests: PD and nodes of unistore (cluster/README.md). Everything listens on 127.0.0.1.
#
#   scripts/cluster.sh start [--stores N] [--pd-port P] [--store-port P] [--region-keys N] [--poison TEXT]
#                                            start it, and wait until it is ready; a node ends when it reads a key with TEXT
#   scripts/cluster.sh stop [--remove]       stop it; --remove deletes its data, too
#   scripts/cluster.sh status                what runs, and where
#   scripts/cluster.sh kill-store N          end node N (1, 2 …) by SIGKILL
#   scripts/cluster.sh start-store N         start it again, and wait until PD sees it
#   scripts/cluster.sh restart-store N       both
#   scripts/cluster.sh kill-stores, start-stores, restart-stores   the same with all nodes at once
#   scripts/cluster.sh hang-store N, resume-store N     stop node N by SIGSTOP, so that it hangs, and let it go on
#   scripts/cluster.sh kill-pd, start-pd, restart-pd, hang-pd, resume-pd    the same with PD
#   scripts/cluster.sh start-servers [--servers N] [--port P] [--program FILE] [-- OPTION...]   start servers of Frond over it
#   scripts/cluster.sh kill-server N, start-server N, restart-server N                          the same with one of them
#
# Each takes --data FOLDER (target/cluster). A cluster that is started in a folder with data goes on with the data; the ports and
# the number of nodes are those of its first start. FROND_CLUSTER_PROGRAMS names another folder of programs than .cache/cluster. PD takes its port (28320) and the next one, node N its port (28330 + N - 1)
# and the port that is 20 above it, server N of Frond its port (27017 + N - 1). `stop` stops the servers, too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly programs=${FROND_CLUSTER_PROGRAMS:-.cache/cluster}
wait_seconds=${FROND_CLUSTER_WAIT:-60}

say() { printf 'cluster: %s\n' "$*"; }
fail() { printf 'cluster: %s\n' "$*" >&2; exit 1; }

[ $# -gt 0 ] || { sed -n '2,22s/^# \{0,1\}//p' "$0"; exit 2; }
command=$1
shift
data=target/cluster stores=3 pd_port=28320 store_port=28330 region_keys=300000 poison='' remove=no number=
servers=2 port=27017 program=target/release/frond options=()
while [ $# -gt 0 ]; do
    case $1 in
        --data) data=$2; shift ;;
        --stores) stores=$2; shift ;;
        --pd-port) pd_port=$2; shift ;;
        --store-port) store_port=$2; shift ;;
        --region-keys) region_keys=$2; shift ;;
        --poison) poison=$2; shift ;;
        --servers) servers=$2; shift ;;
        --port) port=$2; shift ;;
        --program) program=$2; shift ;;
        --) shift; options=("$@"); break ;;
        --remove) remove=yes ;;
        [0-9]*) number=$1 ;;
        *) fail "unknown argument: $1" ;;
    esac
    shift
done
case $data in /*) ;; *) data=$PWD/$data ;; esac
case $program in /*) ;; *) program=$PWD/$program ;; esac
[ ! -f "$data/settings" ] || . "$data/settings"
[ "$command" = start-servers ] || [ ! -f "$data/servers" ] || . "$data/servers"
readonly pd=http://127.0.0.1:$pd_port

# Prints the process of a program, if it still runs. A number that another process has got is not taken for it.
process() {
    local pid
    pid=$(cat "$data/$1.pid" 2>/dev/null) || return 1
    { tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null | grep -qF -- "$data/" || return 1
    printf '%s\n' "$pid"
}

# Starts a program of its own session, so that signals to a terminal do not reach it: launch NAME COMMAND...
launch() {
    local name=$1
    shift
    ! process "$name" >/dev/null || return 0
    setsid nohup "$@" >>"$data/$name.log" 2>&1 </dev/null &
    echo $! >"$data/$name.pid"
}

# end NAME SIGNAL
end() {
    local pid
    pid=$(process "$1") || return 0
    kill -s "$2" "$pid" 2>/dev/null || true
    # One that hangs gets the signal when it goes on.
    kill -s CONT "$pid" 2>/dev/null || true
    for _ in $(seq 100); do
        process "$1" >/dev/null || break
        sleep 0.1
    done
    ! process "$1" >/dev/null || kill -s KILL "$pid" 2>/dev/null || true
    rm -f "$data/$1.pid"
}

# await WHAT NAME CONDITION...: waits until the condition holds. The program NAME must run meanwhile.
await() {
    local what=$1 name=$2
    shift 2
    for _ in $(seq $((wait_seconds * 5))); do
        ! "$@" || return 0
        process "$name" >/dev/null || { tail -5 "$data/$name.log" >&2; fail "$name has ended: see $data/$name.log"; }
        sleep 0.2
    done
    fail "$what took longer than $wait_seconds s: see $data/*.log"
}

fetch() { curl -sf --max-time 5 "$@"; }

pd_healthy() { fetch "$pd/pd/api/v1/health" | grep -q '"health": true' && fetch "$pd/pd/api/v1/leader" >/dev/null; }

store_answers() { fetch "http://127.0.0.1:$((store_port + $1 + 19))/status" >/dev/null; }

# PD asks for a region of each keyspace, and unistore cannot split regions by request. Without the rule PD stops asking.
no_keyspaces() {
    fetch -X DELETE "$pd/pd/api/v1/config/region-label/rule/keyspaces%2F0" >/dev/null || true
    for region in 2 8; do
        fetch -X DELETE "$pd/pd/api/v1/operators/$region" >/dev/null || true
    done
}

# True when all nodes are up, and each region has a leader and all its copies, with what belongs into them.
ready() {
    local up leaders regions lacking
    up=$(fetch "$pd/pd/api/v1/stores" | grep -c '"state_name": "Up"') || return 1
    [ "$up" -eq "$stores" ] || return 1
    # A copy counts from when it is decided on. Until it has got its first snapshot it is a learner, and pending.
    for lacking in miss-peer learner-peer pending-peer; do
        fetch "$pd/pd/api/v1/regions/check/$lacking" | grep -Eq '"count": ?0,' || return 1
    done
    regions=$(fetch "$pd/pd/api/v1/stats/region" | sed -n 's/^ *"count": \([0-9]*\).*/\1/p' | head -1)
    leaders=$(fetch "$pd/pd/api/v1/stores" | sed -n 's/^ *"leader_count": \([0-9]*\).*/\1/p' | awk '{n += $1} END {print n + 0}')
    [ "${regions:-0}" -gt 0 ] && [ "$leaders" -ge "$regions" ]
}

start_pd() {
    launch pd "$programs/pd-server" --name pd --data-dir "$data/pd" --config "$data/pd.toml" \
        --client-urls "http://127.0.0.1:$pd_port" --peer-urls "http://127.0.0.1:$((pd_port + 1))"
    await "the start of PD" pd pd_healthy
}

start_store() {
    launch "store-$1" "$programs/store" --pd "127.0.0.1:$pd_port" --addr "127.0.0.1:$((store_port + $1 - 1))" \
        --status-addr "127.0.0.1:$((store_port + $1 + 19))" --data-dir "$data/store-$1" --region-keys "$region_keys" ${poison:+--poison "$poison"}
}

start_all() {
    [ -x "$programs/pd-server" ] && [ -x "$programs/store" ] || fail "not installed: run scripts/setup.sh cluster"
    mkdir -p "$data"
    if [ ! -f "$data/settings" ]; then
        printf '%s=%q\n' stores "$stores" pd_port "$pd_port" store_port "$store_port" region_keys "$region_keys" poison "$poison" >"$data/settings"
        # unistore does not merge regions.
        cat >"$data/pd.toml" <<EOF
[log]
level = "warn"
[replication]
max-replicas = $((stores < 3 ? 1 : 3))
[schedule]
max-merge-region-size = 0
max-merge-region-keys = 0
EOF
    fi
    start_pd
    for n in $(seq "$stores"); do
        start_store "$n"
        # The first node founds the cluster; the others join it.
        await "the start of node $n" "store-$n" store_answers "$n"
    done
    no_keyspaces
    await "the distribution of the regions" pd ready
    say "ready: --pd 127.0.0.1:$pd_port, $stores nodes, data in $data"
}

start_stores() {
    for n in $(seq "$stores"); do start_store "$n"; done
    for n in $(seq "$stores"); do await "the start of node $n" "store-$n" store_answers "$n"; done
}

# kill_stores: all at the same time.
kill_stores() {
    local pids=() pid n
    for n in $(seq "$stores"); do
        ! pid=$(process "store-$n") || pids+=("$pid")
    done
    [ ${#pids[@]} -eq 0 ] || kill -s KILL "${pids[@]}" 2>/dev/null || true
    for n in $(seq "$stores"); do end "store-$n" KILL; done
}

# signal NAME SIGNAL
signal() {
    local pid
    pid=$(process "$1") || fail "$1 does not run"
    kill -s "$2" "$pid"
}

server_serves() { tail -n "+$lines" "$data/server-$1.log" | grep -q 'Waiting for connections'; }

start_server() {
    local lines
    mkdir -p "$data/server-$1"
    ! process "server-$1" >/dev/null || return 0
    touch "$data/server-$1.log"
    lines=$(($(wc -l <"$data/server-$1.log") + 1))
    launch "server-$1" "$program" serve --storageEngine tikv --pd "127.0.0.1:$pd_port" --port $((port + $1 - 1)) \
        --dbpath "$data/server-$1" "${options[@]}"
    await "the start of server $1" "server-$1" server_serves "$1"
}

start_servers() {
    [ -x "$program" ] || fail "no $program: build it, or name another one with --program"
    printf '%s=%q\n' servers "$servers" port "$port" program "$program" >"$data/servers"
    printf 'options=(%s)\n' "${options[*]@Q}" >>"$data/servers"
    for n in $(seq "$servers"); do start_server "$n"; done
    say "serving: mongodb://$(seq -s, -f "127.0.0.1:%.0f" "$port" $((port + servers - 1)))"
}

need_number() { [[ $number =~ ^[0-9]+$ ]] && [ "$number" -ge 1 ] && [ "$number" -le "$stores" ] || fail "which node, 1 to $stores?"; }
need_cluster() { [ -f "$data/settings" ] || fail "no cluster in $data"; }

case $command in
    start) start_all ;;
    start-servers) need_cluster; start_servers ;;
    kill-server) need_cluster; end "server-$number" KILL ;;
    start-server | restart-server)
        need_cluster
        [ "$command" = start-server ] || end "server-$number" KILL
        start_server "$number"
        ;;
    stop)
        for n in $(seq "$servers"); do end "server-$n" TERM; done
        for n in $(seq "$stores"); do end "store-$n" TERM; done
        end pd TERM
        [ $remove = no ] || [ ! -f "$data/settings" ] || rm -rf "$data"
        ;;
    status)
        need_cluster
        printf 'PD    127.0.0.1:%s  %s\n' "$pd_port" "$(process pd || echo 'does not run')"
        for n in $([ ! -f "$data/servers" ] || seq "$servers"); do
            printf 'frond %s 127.0.0.1:%s  %s\n' "$n" $((port + n - 1)) "$(process "server-$n" || echo 'does not run')"
        done
        for n in $(seq "$stores"); do
            printf 'node %s 127.0.0.1:%s  %s\n' "$n" $((store_port + n - 1)) "$(process "store-$n" || echo 'does not run')"
        done
        ready && echo ready || { echo 'not ready'; exit 1; }
        ;;
    kill-store) need_cluster; need_number; end "store-$number" KILL ;;
    start-store | restart-store)
        need_cluster; need_number
        [ "$command" = start-store ] || end "store-$number" KILL
        start_store "$number"
        await "the start of node $number" "store-$number" store_answers "$number"
        ;;
    kill-stores) need_cluster; kill_stores ;;
    start-stores) need_cluster; start_stores ;;
    restart-stores) need_cluster; kill_stores; start_stores ;;
    hang-store) need_cluster; need_number; signal "store-$number" STOP ;;
    resume-store) need_cluster; need_number; signal "store-$number" CONT ;;
    hang-pd) need_cluster; signal pd STOP ;;
    resume-pd) need_cluster; signal pd CONT ;;
    kill-pd) need_cluster; end pd KILL ;;
    start-pd | restart-pd)
        need_cluster
        [ "$command" = start-pd ] || end pd KILL
        start_pd
        ;;
    *) fail "unknown command: $command" ;;
esac
