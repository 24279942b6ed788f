"""mongosh starts without an error or a warning, runs scripts, and works interactively."""

import json
import os
import re
import subprocess
import tempfile

import pexpect
from harness.tap import equal, run, test

HERE = os.path.dirname(os.path.abspath(__file__))
SHELL = os.path.join(os.path.dirname(HERE), "node_modules", ".bin", "mongosh")
URI = os.environ["FROND_URI"]

# Texts that a shell must not show.
BAD = re.compile(r"error|warning|warn\b|deprecat|exception|failed|not supported|unsupported", re.IGNORECASE)


def environment(home):
    """A home directory without the user's history and settings; no telemetry, no downloads."""
    folder = os.path.join(home, ".mongodb", "mongosh")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config"), "w", encoding="utf-8") as config:
        json.dump({"enableTelemetry": False, "updateURL": ""}, config)
    return {**os.environ, "HOME": home, "MONGOSH_FORCE_DISABLE_TELEMETRY_FOR_TESTING": "1", "NO_COLOR": "1", "TERM": "dumb"}


def shell(home, *arguments, timeout=120):
    done = subprocess.run(
        [SHELL, *arguments],
        env=environment(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return done.returncode, done.stdout, done.stderr


# Warnings of mongosh about its Node.js do not concern the server; the server warns of the user that it runs as, where that is root.
OWN = re.compile(r"^Deprecation warnings:|Node\.js versions lower than|server generated these startup warnings")


def clean(text):
    bad = [line for line in text.splitlines() if BAD.search(line) and not OWN.search(line.strip(" -"))]
    equal(bad, [], "lines that complain")


@test
def a_quiet_command_prints_its_result_only(home):
    equal(shell(home, "--quiet", URI, "--eval", "db.runCommand({ping: 1}).ok"), (0, "1\n", ""))
    equal(shell(home, "--quiet", URI, "--eval", "db.version().split('.')[0]"), (0, "8\n", ""))


@test
def a_start_with_greeting_shows_no_error_and_no_warning(home):
    code, out, err = shell(home, URI, "--eval", "print('done')")
    equal((code, err), (0, ""))
    clean(out)
    assert "done" in out, out


@test
def an_error_in_a_command_is_an_exit_code(home):
    code, out, err = shell(home, "--quiet", URI, "--eval", "db.runCommand({nosuch: 1})")
    equal(code, 1)
    assert "no such command: 'nosuch'" in out + err, (out, err)


@test
def a_person_at_a_terminal(home):
    child = pexpect.spawn(
        SHELL, [URI], env=environment(home), encoding="utf-8", timeout=120, dimensions=(50, 200), echo=False
    )
    log = []

    def say(line):
        child.sendline(line)
        child.expect(r"\r\n(\x1b\[[0-9;?]*[A-Za-z])*(\[mongos\] |rs0 \[primary\] )?\w+> ")
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", child.before)
        log.append(text)
        return text

    try:
        child.expect("test> ")
        start = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", child.before)
        assert re.search(r"Using MongoDB:\s+8\.", start), start
        clean(start)
        assert "switched to db" in say("use terminal")
        assert "acknowledged: true" in say("db.people.insertOne({_id: 1, name: 'Ada'})")
        assert "Ada" in say("db.people.find()")
        assert "people" in say("show collections")
        assert "terminal" in say("show dbs")
        say("for (let n = 100; n < 150; n++) db.people.insertOne({_id: n})")
        assert 'Type "it" for more' in say("db.people.find()")
        assert "_id: 149" in say("it") + say("it")
        assert "E11000" in say("db.people.insertOne({_id: 1})")
        assert "ok: 1" in say("db.dropDatabase()")
        child.sendline("exit")
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)
    for line in log:
        assert "MongoServerSelectionError" not in line, line


def script(home):
    """The tests of mongosh_script.js, each counted here."""
    code, out, err = shell(home, "--quiet", URI, "--file", os.path.join(HERE, "mongosh_script.js"))
    lines = out.splitlines()
    passed = [line for line in lines if line.startswith("ok - ")]
    failed = [line for line in lines if line.startswith("not ok - ")]
    print(out, end="")
    print("  # " + err.replace("\n", "\n  # ") if err else "", end="")
    whole = code == 0 and not err
    print(f"{'ok' if whole else 'not ok'} - the script ran to its end in silence (code {code})")
    return len(passed) + whole, len(failed) + (not whole)


with tempfile.TemporaryDirectory(prefix="frond-mongosh-") as folder:
    run(folder, counted=script(folder))
