#!/usr/bin/env bash
# Builds the server for release and runs it in the foreground: `make run`. From the environment:
#
#   DBPATH      directory of the data files
#   PORT        TCP port
#   HTTP_PORT   port of the console and the metrics; empty for none
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly binary=target/release/frond

if [ ! -x "$binary" ]; then
    cores=$(nproc)
    echo "frond: the first build takes about $((9 / cores + 1)) minutes on $cores cores; later ones only build what has changed" >&2
fi
# Without the TiKV client and the export of traces, which are a tenth of the build; packages have them.
cargo build --release --locked --no-default-features
mkdir -p "$DBPATH"

options=(--dbpath "$DBPATH" --port "$PORT")
[ -z "$HTTP_PORT" ] || options+=(--httpPort "$HTTP_PORT")

# Tells the addresses when the server is ready, below its own lines.
tell() {
    local address=127.0.0.1:$PORT
    while kill -0 "$1" 2>/dev/null; do
        if (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null; then
            {
                echo
                echo "frond: ready at mongodb://$address, data in $DBPATH; Ctrl-C stops it"
                if [ -n "$HTTP_PORT" ]; then
                    echo "frond: the console is at http://127.0.0.1:$HTTP_PORT/"
                else
                    echo "frond: make run HTTP_PORT=28017 turns the console on"
                fi
                echo "frond: mongosh mongodb://$address/"
            } >&2
            return
        fi
        sleep 0.2
    done
}
tell $$ &
exec "$binary" serve "${options[@]}"
