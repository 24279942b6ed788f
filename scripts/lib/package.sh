# shellcheck shell=bash
# What the scripts that make packages share. They are called from the root of the repository. From the environment:
#
#   BINARY     a built frond to package [default: built first, optimised]
#   VERSION    version of the packages [default: that of Cargo.toml]
#   BYTES_MAX  the largest size of the program without symbols [default: 31457280]
#   FAST       compress the packages little: for tests

package_fail() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

package_version() {
    printf '%s\n' "${VERSION:-$(awk -F '"' '/^version = / { print $2; exit }' Cargo.toml)}"
}

# The time that files of packages get, so that two builds of one commit are equal.
package_time() {
    printf '%s\n' "${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}"
}

# The machine, as the Rust target and the OCI specification name it.
package_machine() { uname -m; }
package_goarch() {
    case $(uname -m) in
        x86_64) echo amd64 ;;
        aarch64) echo arm64 ;;
        *) uname -m ;;
    esac
}

# Puts the program without symbols, and its symbols, into a folder: package_program dynamic|static FOLDER. The result is
# FOLDER/frond and FOLDER/frond.debug, which gdb and perf find by the build id and by the name.
package_program() {
    local kind=$1 folder=$2 built=${BINARY:-} size most=${BYTES_MAX:-31457280}
    if [ -z "$built" ]; then
        built=$(package_build "$kind")
    fi
    command -v objcopy >/dev/null || package_fail 'objcopy is missing: install binutils'
    [ "$kind" = dynamic ] || [ -z "$(LC_ALL=C readelf -d "$built" | grep NEEDED)" ] ||
        package_fail "$built needs shared libraries: a static program is needed"
    mkdir -p "$folder"
    objcopy --only-keep-debug "$built" "$folder/frond.debug"
    objcopy --strip-all --remove-section=.comment --add-gnu-debuglink="$folder/frond.debug" "$built" "$folder/frond"
    chmod 755 "$folder/frond"
    chmod 644 "$folder/frond.debug"
    size=$(stat -c %s "$folder/frond")
    [ "$size" -le "$most" ] || package_fail "the program has $size bytes, more than $most"
}

# Builds and prints the path of the program. Static programs have the C library inside: glibc, whose routines for memory are
# several times as fast as those of musl.
package_build() {
    local target
    if [ "$1" = dynamic ]; then
        cargo build --profile packaging --locked -p frond >&2
        echo "${CARGO_TARGET_DIR:-target}/packaging/frond"
    else
        target=$(rustc -vV | awk '/^host: / { print $2 }')
        RUSTFLAGS='-C target-feature=+crt-static' \
            cargo build --profile packaging --locked -p frond --target "$target" >&2
        echo "${CARGO_TARGET_DIR:-target}/$target/packaging/frond"
    fi
}

# Puts what all packages share into a folder like /usr/share: package_share PROGRAM FOLDER
package_share() {
    local program=$1 share=$2 gzip=(gzip -n9)
    "$program" manual --out "$share/man/pages"
    mkdir -p "$share/man/man1" "$share/man/man5" "$share/doc/frond" \
        "$share/bash-completion/completions" "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
    mv "$share"/man/pages/*.1 "$share/man/man1/"
    mv "$share"/man/pages/*.5 "$share/man/man5/"
    rmdir "$share/man/pages"
    "${gzip[@]}" "$share"/man/man?/*
    "$program" completions bash >"$share/bash-completion/completions/frond"
    "$program" completions zsh >"$share/zsh/vendor-completions/_frond"
    "$program" completions fish >"$share/fish/vendor_completions.d/frond.fish"
    cp packaging/debian/copyright "$share/doc/frond/copyright"
    python3 packaging/third_party.py | "${gzip[@]}" >"$share/doc/frond/THIRD-PARTY.gz"
}

# Gives all files of a folder one time, and permissions that do not depend on the umask.
package_settle() {
    find "$1" -print0 | xargs -0 touch --no-dereference --date="@$(package_time)"
    find "$1" -type d -print0 | xargs -0 chmod 755
    find "$1" -type f ! -perm -u+x -print0 | xargs -0 -r chmod 644
    find "$1" -type f -perm -u+x -print0 | xargs -0 -r chmod 755
}
