#!/usr/bin/env bash
# Makes an archive of a static program, which runs on every Linux of this kind of processor.
#
#   scripts/package-tar.sh OUT
#
# OUT gets frond-VERSION-linux-MACHINE.tar.gz, its SHA-256, and an archive with the symbols. From the environment: see
# scripts/lib/package.sh, and
#
#   SYMBOLS   1   0 leaves the archive of the symbols out
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/package.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
name=frond-$(package_version)-linux-$(package_machine)
root=$work/$name
package_program static "$work"
install -D -m 755 "$work/frond" "$root/bin/frond"
package_share "$work/frond" "$root/share"
install -D -m 644 packaging/frond.conf "$root/etc/frond.conf"
install -D -m 644 packaging/frond.service "$root/etc/frond.service"
install -D -m 644 packaging/frond.logrotate "$root/etc/frond.logrotate"
install -m 644 LICENSE README.md CHANGELOG.md "$root/"
mkdir -p "$root/docs"
cp docs/*.md "$root/docs/"

level=-9
[ -z "${FAST:-}" ] || level=-1
# pack ARCHIVE FOLDER NAME
pack() {
    package_settle "$2/$3"
    tar --create --sort=name --owner=0 --group=0 --numeric-owner --format=ustar --directory="$2" "$3" |
        gzip -n "$level" >"$out/$1"
    (cd "$out" && sha256sum "$1" >"$1.sha256")
    echo "$out/$1"
}
pack "$name.tar.gz" "$work" "$name"
[ "${SYMBOLS:-1}" = 1 ] || exit 0
install -D -m 644 "$work/frond.debug" "$work/symbols/$name/bin/frond.debug"
pack "$name-symbols.tar.gz" "$work/symbols" "$name"
