#!/usr/bin/env bash
# Makes the Debian packages frond and frond-dbgsym, without debhelper: only dpkg-deb and binutils are needed.
#
#   scripts/package-deb.sh OUT
#
# OUT gets frond_VERSION_ARCHITECTURE.deb and the symbols. From the environment: see scripts/lib/package.sh, and
#
#   SYMBOLS     1   0 leaves the package of the symbols out
#   MAINTAINER      name and address of whoever publishes the packages
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/package.sh
command -v dpkg-deb >/dev/null || package_fail 'dpkg-deb is missing: install dpkg'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(package_version)-1
architecture=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=$(package_time)
export SOURCE_DATE_EPOCH
compression=(-Zxz)
[ -z "${FAST:-}" ] || compression=(-Zgzip -z1)
maintainer=${MAINTAINER:-The Frond authors <frond@localhost>}

package_program dynamic "$work"
program=$work/frond root=$work/root
install -D -m 755 "$program" "$root/usr/bin/frond"
package_share "$program" "$root/usr/share"
install -D -m 644 packaging/frond.conf "$root/etc/frond.conf"
install -D -m 644 packaging/frond.logrotate "$root/etc/logrotate.d/frond"
install -D -m 644 packaging/frond.service "$root/lib/systemd/system/frond.service"
install -D -m 644 packaging/debian/lintian-overrides "$root/usr/share/lintian/overrides/frond"
{
    printf 'frond (%s) unstable; urgency=medium\n\n' "$version"
    printf '  * changelog.gz beside this file lists the changes.\n\n'
    printf ' -- %s  %s\n' "$maintainer" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"
} | gzip -n9 >"$root/usr/share/doc/frond/changelog.Debian.gz"
gzip -n9 <CHANGELOG.md >"$root/usr/share/doc/frond/changelog.gz"

# The version of the C library that the program's symbols need, and its other libraries.
depends() {
    local needed glibc library
    needed=$(LC_ALL=C readelf -d "$program" | awk -F '[][]' '/NEEDED/ { print $2 }')
    glibc=$(LC_ALL=C readelf -V "$program" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -V | tail -1 || true)
    for library in $needed; do
        case $library in
            libc.so.6) printf 'libc6 (>= %s), ' "$glibc" ;;
            libgcc_s.so.1) printf 'libgcc-s1, ' ;;
            libm.so.6 | libpthread.so.0 | libdl.so.2 | librt.so.1 | ld-linux*) ;;
            *) package_fail "no Debian package is known for $library" ;;
        esac
    done
    printf 'adduser, debconf (>= 0.5) | debconf-2.0, init-system-helpers (>= 1.54)\n'
}
depends=$(depends)
size() { du -k --apparent-size -s "$1" | cut -f1; }

install -d "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<EOF
Package: frond
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(size "$root")
Depends: $depends
Suggests: logrotate
Section: database
Priority: optional
Description: document database that speaks MongoDB's wire protocol
 Frond keeps every index as a Fractal Tree (a B-epsilon tree), so that the
 speed of insertion does not fall off when indexes outgrow memory. Drivers
 and shells of MongoDB work with it.
EOF
printf '/etc/frond.conf\n/etc/logrotate.d/frond\n' >"$root/DEBIAN/conffiles"
install -m 644 packaging/debian/templates "$root/DEBIAN/"
install -m 755 packaging/debian/{postinst,prerm,postrm} "$root/DEBIAN/"
(cd "$root" && find etc lib usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
package_settle "$root"
dpkg-deb --root-owner-group "${compression[@]}" --build "$root" "$out/frond_${version}_$architecture.deb"

[ "${SYMBOLS:-1}" = 1 ] || exit 0
id=$(LC_ALL=C readelf -n "$program" | awk '/Build ID:/ { print $3 }')
[ -n "$id" ] || package_fail 'the program has no build id'
symbols=$work/symbols
install -D -m 644 "$work/frond.debug" "$symbols/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug"
install -D -m 644 packaging/debian/copyright "$symbols/usr/share/doc/frond-dbgsym/copyright"
install -d "$symbols/DEBIAN"
cat >"$symbols/DEBIAN/control" <<EOF
Package: frond-dbgsym
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(size "$symbols")
Depends: frond (= $version)
Section: debug
Priority: optional
Auto-Built-Package: debug-symbols
Build-Ids: $id
Description: debug symbols for frond
 Names of functions and line tables, which gdb and perf find by the build id.
EOF
package_settle "$symbols"
dpkg-deb --root-owner-group "${compression[@]}" --build "$symbols" "$out/frond-dbgsym_${version}_$architecture.deb"
