"""`frond migrate` between Frond and FerretDB, whose build takes minutes: `make clients-ferretdb`."""

import signal

from harness.migration import BINARY, Two, Writer, await_following, connect, finish, migrate, moved, same
from harness.others import FerretDB
from harness.server import Server
from harness.tap import run, test
from harness.waiting import wait_until


@test
def from_ferretdb_and_back():
    with Two(FerretDB(), Server(BINARY)) as (source, target):
        with connect(source) as client:
            client.shop.things.insert_many([{"_id": n, "s": f"s{n}", "d": n / 4} for n in range(2_000)])
            client.shop.things.insert_many([{"s": n} for n in range(1_000)])
            client.shop.things.create_index("s")
        with Writer(source, plain=True) as writer, connect(target) as theirs:
            process = migrate(source, target, "--no-users")
            wait_until("the copy", lambda: theirs.shop.things.estimated_document_count() >= 1_000 or process.poll() is not None)
            process.kill()
            process.communicate()
            process = migrate(source, target, "--no-users")
            await_following(theirs, process)
            writes = writer.writes
            wait_until("more writes", lambda: writer.writes > writes + 10)
            writer.stop()
            process.send_signal(signal.SIGINT)
            finish(process)
        same(source, target, with_indexes=False)
        with FerretDB() as back:
            said = moved(target, back, "--dry-run")
            moved(target, back, "--cutover", "--no-users")
            same(target, back, with_indexes=False)
            assert "FerretDB" in said, said


@test
def what_the_target_refuses_is_said():
    with Two(Server(BINARY), FerretDB()) as (source, target):
        with connect(source) as client:
            client.shop.texts.insert_one({"_id": 1, "t": "a"})
            client.shop.texts.create_index([("t", "text")])
        said = moved(source, target, "--dry-run", code=2)
        assert "index t_text of shop.texts" in said, said
        assert "--allow-refused" in moved(source, target, "--cutover", "--no-users", code=2)
        said = moved(source, target, "--cutover", "--no-users", "--allow-refused")
        assert "index t_text of shop.texts" in said, said
        same(source, target, with_indexes=False)


if __name__ == "__main__":
    run()
