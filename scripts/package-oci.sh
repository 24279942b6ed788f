#!/usr/bin/env bash
# Makes a container image with a static program, without a daemon: an OCI layout, and the same as an archive that
# `docker load`, `podman load` and `skopeo copy oci-archive:…` read.
#
#   scripts/package-oci.sh OUT
#
# OUT gets the folder frond-VERSION-oci and the archive frond-VERSION-oci-ARCHITECTURE.tar. From the environment: see
# scripts/lib/package.sh.
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/package.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(package_version)
package_program static "$work"
layout=$out/frond-$version-oci
rm -rf "$layout"
python3 packaging/oci.py --program "$work/frond" --out "$layout" --version "$version" \
    --architecture "$(package_goarch)" --time "$(package_time)" \
    --revision "$(git rev-parse HEAD 2>/dev/null || true)"
archive=$layout-$(package_goarch).tar
tar --create --sort=name --owner=0 --group=0 --numeric-owner --format=ustar --mtime="@$(package_time)" --mode=u=rwX,go=rX \
    --directory="$layout" --file="$archive" .
echo "$layout"
echo "$archive"
