#!/usr/bin/env python3
"""Makes the packages from a built server and uses them as a person does: installs, starts, upgrades, removes, purges.

    run.py --server target/debug/frond                        the Debian package, and the form of the image
    run.py --server FROND --static STATIC [--with-tools DIR]  also the archive and the image, and checks by further tools

Everything is installed into a copy of the machine's root in memory, in namespaces of this process, which needs root: without
it the packages are only looked at. --with-tools installs Debian packages there first (scripts/setup.sh packages downloads lintian,
skopeo, umoci and logrotate). The last line is "packages: N passed, M failed".
"""
import argparse
import gzip
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "clients")]
import oci  # noqa: E402
import root as roots  # noqa: E402
from harness.waiting import PATIENCE, wait_until  # noqa: E402

OLD, NEW = "0.0.9", "0.1.0"


class Skipped(Exception):
    """What a test needs is not there."""


def sh(*arguments, environment=None, check=True):
    done = subprocess.run(arguments, cwd=ROOT, env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(map(str, arguments))}: status {done.returncode}\n{done.stdout}")
    return done.stdout


def need(condition, what):
    if not condition:
        raise AssertionError(what)


def client():
    import pymongo

    return pymongo.MongoClient("mongodb://127.0.0.1:27017", serverSelectionTimeoutMS=PATIENCE * 1000)


class Service:
    """The server of a package, started as systemd starts a unit of the type notify: the same command, user and messages."""

    def __init__(self, root, program="/usr/bin/frond", arguments=("serve", "--config", "/etc/frond.conf"), user="frond:frond"):
        self.root, self.messages = root, []
        path = root.inside("/run/notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path.unlink(missing_ok=True)
        self.socket.bind(str(path))
        self.socket.settimeout(0.1)
        path.chmod(0o777)
        environment = {"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "400000"}
        command = root.command(program, *arguments, user=user, environment=environment)
        self.process = subprocess.Popen(**command, stdout=subprocess.DEVNULL)
        self.is_over = False
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while True:
            try:
                self.messages += self.socket.recv(65536).decode().splitlines()
            except TimeoutError:
                if self.is_over:
                    return

    def wait_for(self, message):
        wait_until(message, lambda: self.process.poll() is not None or message in self.messages)
        need(message in self.messages, f"{message} is not in {self.messages}; status {self.process.poll()}")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        need(self.process.wait(PATIENCE) == 0, f"status {self.process.returncode}")
        self.is_over = True
        self.reader.join()
        need("STOPPING=1" in self.messages, self.messages)
        self.socket.close()


class Tests:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.debs, self.root, self.service = {}, None, None

    # The packages themselves.

    def build_deb(self):
        """The Debian package is made of two versions, and twice of one, which gives the same bytes."""
        for version in (OLD, NEW):
            out = self.work / version
            environment = {"VERSION": version, "BINARY": str(self.options.server), "FAST": "1", "SYMBOLS": "0"}
            if self.options.bytes_max:
                environment["BYTES_MAX"] = str(self.options.bytes_max)
            sh("scripts/package-deb.sh", out, environment=environment)
            (self.debs[version],) = out.glob("frond_*.deb")
        again = self.work / "again"
        sh("scripts/package-deb.sh", again, environment=environment)
        (other,) = again.glob("frond_*.deb")
        need(other.read_bytes() == self.debs[NEW].read_bytes(), "two packages of one program differ")
        shutil.rmtree(again)

    def look_into_deb(self):
        """The Debian package has its files, with owners and modes, and says what it needs."""
        listed = sh("dpkg-deb", "--contents", self.debs[NEW])
        for path, mode in {"usr/bin/frond": "-rwxr-xr-x", "etc/frond.conf": "-rw-r--r--", "etc/logrotate.d/frond": "-rw-r--r--",
                           "lib/systemd/system/frond.service": "-rw-r--r--", "usr/share/man/man1/frond-serve.1.gz": "-rw-r--r--",
                           "usr/share/man/man5/frond.conf.5.gz": "-rw-r--r--", "usr/share/doc/frond/copyright": "-rw-r--r--",
                           "usr/share/doc/frond/THIRD-PARTY.gz": "-rw-r--r--",
                           "usr/share/bash-completion/completions/frond": "-rw-r--r--"}.items():
            need(re.search(rf"^{mode} root/root .* \./{re.escape(path)}$", listed, re.M), f"{path}\n{listed}")
        control = sh("dpkg-deb", "--field", self.debs[NEW])
        need(re.search(r"^Depends: .*libc6 \(>= 2\.\d+\), .*adduser", control, re.M), control)
        need(f"Version: {NEW}-1" in control, control)

    def size(self):
        """The program has at most 30 MiB in packages, whose symbols are apart. With the names of functions it is larger."""
        if self.options.bytes_max:
            raise Skipped("not an optimised build")
        for program in filter(None, (self.options.server, self.options.static)):
            sizes = {}
            for option in ("--strip-all", "--strip-debug"):
                stripped = self.work / "stripped"
                sh("objcopy", option, program, stripped)
                sizes[option] = stripped.stat().st_size
                print(f"# {program.name} {option}: {sizes[option]} bytes")
            need(sizes["--strip-all"] <= 30 << 20, f"{program} has {sizes['--strip-all']} bytes without symbols")

    def symbols(self):
        """A debugger finds the symbols that were moved into a file of their own."""
        out = sh("bash", "-c", ". scripts/lib/package.sh; package_program dynamic \"$1\"", "bash", self.work / "symbols",
                 environment={"BINARY": str(self.options.server), "BYTES_MAX": str(1 << 30)})
        need(not out.strip(), out)
        sections = sh("readelf", "-SW", self.work / "symbols" / "frond")
        need(".gnu_debuglink" in sections and ".symtab" not in sections and ".debug_line" not in sections, sections)
        if not shutil.which("gdb"):
            raise Skipped("gdb is not installed")
        names = sh("nm", self.work / "symbols" / "frond.debug")
        address = re.search(r"^([0-9a-f]+) . _(?:ZN|R).*5frond4main", names, re.M).group(1)

        def debugger(program, what):
            # Warnings about the program come before the answer.
            return sh("gdb", "-batch", "-nx", "-ex", f"info {what}0x{address}", program).splitlines()[-1]

        symbol = debugger(self.work / "symbols" / "frond", "symbol ")
        need("frond::main" in symbol, symbol)
        # A program that was built without line tables has no lines to find.
        before, found = (debugger(program, "line *") for program in (self.options.server, self.work / "symbols" / "frond"))
        need(found == before, f"before: {before}\nfound: {found}")
        shutil.rmtree(self.work / "symbols")

    # The Debian package, installed.

    def install(self):
        """The Debian package is installed: a user, directories of its own, no data yet."""
        self.root = roots.Root("deb")
        self.before = self.root.changes()
        self.root.run("dpkg", "-i", str(self.put(self.debs[OLD])))
        need(self.root.run("frond", "--version")[1].startswith("frond "), "the program runs")
        _, entry = self.root.run("getent", "passwd", "frond")
        uid, gid = map(int, entry.split(":")[2:4])
        need(0 < uid < 1000 and "nologin" in entry, entry)
        for path, mode in {"/var/lib/frond": 0o700, "/var/log/frond": 0o750}.items():
            stat = self.root.inside(path).stat()
            need((stat.st_uid, stat.st_gid, stat.st_mode & 0o777) == (uid, gid, mode), path)
        need(self.root.run("dpkg", "--verify", "frond")[1] == "", "dpkg --verify")
        self.root.run("dpkg", "--audit")

    def put(self, deb):
        """Copies a package to where the root sees it."""
        shutil.copy(deb, self.root.inside("/tmp"))
        return pathlib.Path("/tmp") / deb.name

    def manual(self):
        """The manual pages are shown without complaints, and bash completes the command line."""
        for page in ("frond.1", "frond-serve.1", "frond-doctor.1", "frond.conf.5"):
            section = page.rpartition(".")[2]
            text = gzip.decompress(self.root.inside(f"/usr/share/man/man{section}/{page}.gz").read_bytes())
            need(text.startswith((b".ie", b".TH")), page)
            if shutil.which("man"):
                done = subprocess.run(["man", "--warnings", "-l", "-"], input=text, capture_output=True,
                                      env={**os.environ, "LC_ALL": "C.UTF-8"})
                need(not done.stderr and len(done.stdout) > 200, done.stderr)
        complete = ". /usr/share/bash-completion/completions/frond; COMP_WORDS=(frond doctor --js); COMP_CWORD=2; " \
                   "_frond frond --js doctor; echo ${COMPREPLY[@]}"
        need(self.root.run("bash", "-c", complete)[1].strip() == "--json", self.root.run("bash", "-c", complete)[1])

    def doctor(self):
        """`frond doctor` finds nothing wrong with the installed configuration, and what is wrong with a broken one."""
        line = ("frond", "doctor", "--config", "/etc/frond.conf", "--skipSpeed")
        status, text = self.root.run(*line, user="frond:frond", check=False)
        need(status == 0 and "no data yet" in text and "0 problems" in text, text)
        self.root.inside("/tmp/broken.conf").write_text("net: {prot: 1}\n")
        status, text = self.root.run("frond", "doctor", "-f", "/tmp/broken.conf", "--skipSpeed", check=False)
        need(status == 1 and "unknown option 'net.prot'" in text, text)

    def start(self):
        """The service starts as systemd starts it, tells that it is ready and alive, and is used."""
        self.service = Service(self.root)
        self.service.wait_for("READY=1")
        need("STATUS=Waiting for connections on port 27017" in self.service.messages, self.service.messages)
        with client() as mongo:
            mongo.shop.things.create_index("n")
            mongo.shop.things.insert_many([{"_id": n, "n": n % 7} for n in range(1000)])
            need(mongo.shop.things.count_documents({"n": 3}) == 143, "documents")
        self.service.messages.clear()
        self.service.wait_for("WATCHDOG=1")
        status, text = self.root.run("frond", "doctor", "--config", "/etc/frond.conf", "--skipSpeed", check=False)
        need(status == 0 and "a server uses /var/lib/frond" in text and "a server listens" in text, text)

    def rotate(self):
        """logrotate moves the log, and the server goes on in a new file."""
        log = self.root.inside("/var/log/frond/frond.log")
        need("Waiting for connections" in log.read_text(), "the log")
        if self.root.inside("/usr/sbin/logrotate").exists():
            self.root.run("logrotate", "--force", "/etc/logrotate.d/frond")
        else:
            # What logrotate does, with the script of its configuration.
            log.rename(log.with_name("frond.log.1"))
            text = self.root.inside("/etc/logrotate.d/frond").read_text()
            script = re.search(r"postrotate\n(.*)endscript", text, re.S).group(1)
            self.root.run("sh", "-ec", script)
        with client() as mongo:
            mongo.admin.command("ping")
        wait_until("a new log", lambda: log.exists() and log.stat().st_size > 0)
        need(log.with_name("frond.log.1").exists(), "the moved log")

    def upgrade(self):
        """An upgrade keeps the data, the changed configuration, and a disabled unit disabled."""
        conf = self.root.inside("/etc/frond.conf")
        text = conf.read_text() + "\noperationProfiling: {slowOpThresholdMs: 77}\n"
        conf.write_text(text)
        _, output = self.root.run("dpkg", "--force-confold", "-i", str(self.put(self.debs[NEW])))
        need(f"over ({OLD}-1)" in output, output)
        need(conf.read_text() == text, "the configuration")
        # Without systemd nobody restarts the server; the running one does not notice.
        with client() as mongo:
            need(mongo.shop.things.count_documents({}) == 1000, "documents before the restart")
        self.service.stop()
        self.service = Service(self.root)
        self.service.wait_for("READY=1")
        with client() as mongo:
            need(mongo.shop.things.count_documents({"n": 3}) == 143, "documents after the restart")
            need(mongo.admin.command("profile", -1)["slowms"] == 77, "the configuration counts")
            need(mongo.shop.command("validate", "things", full=True)["valid"], "validate")

    def remove(self):
        """Removing keeps data, log and configuration; installing again finds them."""
        self.service.stop()
        self.root.run("dpkg", "-r", "frond")
        need(not self.root.inside("/usr/bin/frond").exists(), "the program is gone")
        for path in ("/etc/frond.conf", "/var/lib/frond/data.frond", "/var/log/frond/frond.log"):
            need(self.root.inside(path).exists(), path)
        self.root.run("dpkg", "-i", str(self.put(self.debs[NEW])))
        need("slowOpThresholdMs: 77" in self.root.inside("/etc/frond.conf").read_text(), "the configuration")
        service = Service(self.root)
        service.wait_for("READY=1")
        with client() as mongo:
            need(mongo.shop.things.count_documents({}) == 1000, "documents")
        service.stop()

    def purge(self):
        """Purging removes configuration and logs, and the data and the user only if that was answered."""
        self.root.run("dpkg", "-P", "frond")
        for path in ("/etc/frond.conf", "/etc/logrotate.d/frond", "/var/log/frond"):
            need(not self.root.inside(path).exists(), path)
        need(self.root.inside("/var/lib/frond/data.frond").exists(), "the data stays")
        need(self.root.run("getent", "passwd", "frond", check=False)[0] == 0, "the user stays")

        self.root.run("dpkg", "-i", str(self.put(self.debs[NEW])))
        service = Service(self.root)
        service.wait_for("READY=1")
        with client() as mongo:
            need(mongo.shop.things.count_documents({}) == 1000, "the data is found again")
        service.stop()
        self.root.run("sh", "-c", "echo frond frond/remove-data boolean true | debconf-set-selections")
        self.root.run("dpkg", "-P", "frond")
        need(not self.root.inside("/var/lib/frond").exists(), "the data is gone")
        need(self.root.run("getent", "passwd", "frond", check=False)[0] != 0, "the user is gone")
        others = ("/var/lib/dpkg", "/var/lib/systemd", "/var/cache/", "/var/log/", "/etc/passwd", "/etc/group", "/etc/shadow",
                  "/etc/gshadow", "/etc/subuid", "/etc/subgid", "/etc/.pwd.lock", "/tmp", "/run")
        # Folders that packages share stay where dpkg put a file.
        left = [path for path in self.root.changes() - self.before
                if not path.startswith(others) and not self.root.inside(path).is_dir()
                and self.root.inside(path).exists() and "frond" in path]
        need(not left, left)

    def unit(self):
        """systemd finds no fault in the unit, and rates its sandbox."""
        if not shutil.which("systemd-analyze"):
            raise Skipped("systemd-analyze is not installed")
        root = roots.Root("unit")
        shutil.copy(self.debs[NEW], root.inside("/tmp"))
        root.run("dpkg", "-i", f"/tmp/{self.debs[NEW].name}")
        unit = "/lib/systemd/system/frond.service"
        status, text = root.run("systemd-analyze", "verify", unit, check=False)
        mine = [line for line in text.splitlines() if "frond" in line]
        need(status == 0 and not mine, text)
        need(root.inside("/etc/systemd/system/multi-user.target.wants/frond.service").is_symlink(), "the unit is enabled")
        status, text = root.run("systemd-analyze", "security", "--offline=true", "--threshold=20", unit, check=False)
        level = re.search(r"Overall exposure level for frond.service: ([\d.]+)", text)
        if status and level is None:
            raise Skipped(f"systemd-analyze security: {text[-200:]}")
        need(status == 0, text)
        print(f"# exposure level {level.group(1)}")

    # The archive and the image.

    def image_form(self):
        """The image follows the specification, whatever program is in it."""
        self.layout = self.work / "oci"
        if self.options.static:
            sh("scripts/package-oci.sh", self.work / "image", environment={"VERSION": NEW, "BINARY": str(self.options.static),
               "BYTES_MAX": str(self.options.bytes_max or 30 << 20)})
            (self.layout,) = (self.work / "image").glob("frond-*-oci")
            (archive,) = (self.work / "image").glob("frond-*-oci-*.tar")
            need("./index.json" in sh("tar", "--list", "--file", archive), "the archive")
        else:
            sh(sys.executable, "packaging/oci.py", "--program", self.options.server, "--out", self.layout, "--version", NEW,
               "--architecture", "amd64", "--time", "1700000000")
        layout = oci.Layout(self.layout)
        layout.check_docker()
        layout.check_files()

    def image_runs(self):
        """The image runs as a container runtime runs it: its files, its user, its command."""
        if not self.options.static:
            raise Skipped("no static program was given")
        layout = oci.Layout(self.layout)
        root = roots.Root("image")
        folder = root.base / "container"
        layout.unpack(folder)
        (folder / "run").mkdir()
        for name in ("proc", "dev"):
            roots.mount("bind", f"/{name}", folder / name)
        run = layout.config["config"]
        root.path = folder
        service = Service(root, run["Entrypoint"][0], run["Cmd"], run["User"])
        service.wait_for("READY=1")
        with client() as mongo:
            mongo.shop.things.insert_many([{"n": n} for n in range(100)])
            need(mongo.shop.things.count_documents({}) == 100, "documents")
        service.stop()
        need((folder / "data/db/data.frond").stat().st_uid == int(run["User"].split(":")[0]), "the data's owner")

    def archive(self):
        """The archive is unpacked somewhere, and its program serves."""
        if not self.options.static:
            raise Skipped("no static program was given")
        out = self.work / "tar"
        sh("scripts/package-tar.sh", out, environment={"VERSION": NEW, "BINARY": str(self.options.static), "FAST": "1",
           "SYMBOLS": "0", "BYTES_MAX": str(self.options.bytes_max or 30 << 20)})
        (archive,) = out.glob("frond-*.tar.gz")
        sh("sh", "-c", f"cd {out} && sha256sum --check *.sha256")
        root = roots.Root("tar")
        shutil.copy(archive, root.inside("/tmp"))
        root.run("sh", "-ec", f"cd /tmp && tar xzf {archive.name} && mkdir /tmp/data && cd frond-* && ls docs/install.md && "
                              "ls share/man/man5/frond.conf.5.gz && ldd bin/frond 2>&1 | grep -q 'statically linked\\|not a dynamic'")
        (program,) = root.inside("/tmp").glob("frond-*/bin/frond")
        service = Service(root, "/" + str(program.relative_to(root.path)), ["serve", "--dbpath", "/tmp/data", "--bind_ip", "localhost"],
                          "0:0")
        service.wait_for("READY=1")
        with client() as mongo:
            need(mongo.admin.command("ping")["ok"] == 1, "ping")
        service.stop()

    def tools(self):
        """lintian finds no error in the Debian package; skopeo and umoci read the image; logrotate reads its configuration."""
        if not self.options.with_tools:
            raise Skipped("without --with-tools")
        root = roots.Root("tools")
        for archive in pathlib.Path(self.options.with_tools).glob("*.deb"):
            shutil.copy(archive, root.inside("/tmp"))
        root.run("sh", "-ec", "dpkg --unpack /tmp/*.deb >/dev/null; dpkg --configure --pending >/dev/null")
        shutil.copy(self.debs[NEW], root.inside("/tmp"))
        status, text = root.run("lintian", "--allow-root", "--fail-on=error", f"/tmp/{self.debs[NEW].name}", check=False)
        print("".join(f"# {line}\n" for line in text.splitlines()), end="")
        need(status == 0, text)
        shutil.copytree(self.layout, root.inside("/tmp/layout"))
        text = root.run("skopeo", "inspect", f"oci:/tmp/layout:{NEW}")[1]
        need("linux" in text and "27017" not in text or "Digest" in text, text)
        root.run("skopeo", "copy", f"oci:/tmp/layout:{NEW}", f"docker-archive:/tmp/docker.tar:frond:{NEW}")
        root.run("umoci", "unpack", "--image", f"/tmp/layout:{NEW}", "/tmp/bundle")
        need(root.inside("/tmp/bundle/rootfs/usr/bin/frond").stat().st_mode & 0o111, "unpacked by umoci")
        root.run("dpkg", "-i", f"/tmp/{self.debs[NEW].name}")
        root.run("sh", "-c", "echo x >/var/log/frond/frond.log && chown frond:frond /var/log/frond/frond.log && "
                             "logrotate --force /etc/logrotate.d/frond && ls /var/log/frond/frond.log.1")


LOOKS = ["build_deb", "look_into_deb", "size", "symbols", "image_form"]
USES = ["install", "manual", "doctor", "start", "rotate", "upgrade", "remove", "purge", "unit", "image_runs", "archive", "tools"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=pathlib.Path, required=True, help="the program of the Debian package")
    parser.add_argument("--static", type=pathlib.Path, help="the program of the archive and the image")
    parser.add_argument("--bytes-max", type=int, help="a larger limit of the program's size, for builds for tests")
    parser.add_argument("--with-tools", metavar="DIR", help="a folder with packages of lintian, skopeo, umoci and logrotate, to install and use")
    options = parser.parse_args()
    options.server = options.server.resolve()
    options.static = options.static and options.static.resolve()
    is_inside = roots.enter()
    counts = [0, 0]
    with tempfile.TemporaryDirectory(prefix="frond-packages-") as work:
        tests = Tests(options, pathlib.Path(work))
        for name in LOOKS + (USES if is_inside else []):
            test = getattr(tests, name)
            what = test.__doc__.strip()
            try:
                test()
            except Skipped as why:
                print(f"ok - {what} # skip: {why}")
                continue
            except Exception:
                counts[1] += 1
                print(f"not ok - {what}")
                print("".join(f"# {line}\n" for line in traceback.format_exc().splitlines()), end="")
                continue
            counts[0] += 1
            print(f"ok - {what}", flush=True)
        if not is_inside:
            print("# the packages were not installed: that needs root and namespaces")
        if tests.service and tests.service.process.poll() is None:
            tests.service.process.kill()
    print(f"packages: {counts[0]} passed, {counts[1]} failed")
    return 1 if counts[1] else 0


if __name__ == "__main__":
    sys.exit(main())
