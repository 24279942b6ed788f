#!/usr/bin/env python3
"""Uses the console of a built server in Chromium, as a person does.

    run.py --server target/debug/frond                       all tests
    run.py --server target/debug/frond --screenshots folder  also pictures of the views

Prints TAP. The last line is "console: N passed, M failed". FROND_TEST=words runs only the tests whose name has the words.
"""

import argparse
import contextlib
import datetime
import http.client
import json
import os
import random
import sys
import tempfile
import threading
import time

import pymongo
from browser import Browser, Keys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "clients"))
from harness.certificates import Certificates  # noqa: E402
from harness.ports import free_port  # noqa: E402
from harness.server import Server  # noqa: E402

VIEWS = ["overview", "collections", "query", "operations", "slow", "users", "changes", "backups", "set"]
TOWNS = ["Oslo", "Lyon", "Graz", "Porto", "Gent", "Turku", "Split", "Cork"]
INTERRUPTED = 11601
TESTS = []


def test(function):
    TESTS.append(function)
    return function


class Console:
    """A server with a console, and a client of the server."""

    def __init__(self, binary, options=(), scheme="http", **more):
        self.port = free_port()
        # A test may run on a machine that is busy; the cache is that of a small server.
        options = ["--httpPort", str(self.port), "--cacheSizeGB", "0.1", "--slowms", "50", *options]
        self.server = Server(binary, options, **more)
        self.base = f"{scheme}://localhost:{self.port}"

    def __enter__(self):
        self.server.start()
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.server.stop()
        finally:
            self.server.close()

    def client(self, **options):
        return pymongo.MongoClient("127.0.0.1", self.server.port, directConnection=True, **options)

    def view(self, *path):
        return f"{self.base}/#/{'/'.join(path)}"


def seed(client, documents=20_000):
    orders = client.shop.orders
    orders.drop()
    chance = random.Random(7)
    orders.create_index([("town", 1), ("total", -1)])
    orders.create_index("customer")
    begin = datetime.datetime(2026, 1, 1)
    for _ in range(documents // 1000):
        orders.insert_many(
            {
                "customer": chance.randrange(2000),
                "town": chance.choice(TOWNS),
                "total": round(chance.random() * 500, 2),
                "at": begin + datetime.timedelta(minutes=chance.randrange(400_000)),
                "tags": chance.sample(["new", "gift", "bulk", "return", "express"], 2),
            }
            for _ in range(1000)
        )


@contextlib.contextmanager
def load(console):
    """Clients that read and write until the end of the block."""
    ended = threading.Event()

    def work():
        with console.client() as client:
            orders = client.shop.orders
            while not ended.is_set():
                orders.insert_many({"customer": n, "town": "Oslo", "total": n} for n in range(20))
                list(orders.find({"town": random.choice(TOWNS), "total": {"$gt": 480}}).limit(20))
                orders.update_one({"customer": random.randrange(2000)}, {"$inc": {"total": 1}})
                time.sleep(0.01)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def run_query(page, console, filter_text, sort=""):
    page.open(console.view("query", "shop", "orders"))
    page.type("#q-filter", filter_text)
    page.type("#q-sort", sort)


def never_ends(console, application="report"):
    """A client with an aggregation that takes minutes. The error that ends it is kept."""
    kept = {}

    def work():
        stages = [
            {"$lookup": {"from": "orders", "pipeline": [{"$match": {"nothing": 1}}], "as": "x"}},
            {"$match": {"x.y": 1}},
        ]
        with console.client(appname=application) as client:
            try:
                list(client.shop.orders.aggregate(stages))
            except pymongo.errors.PyMongoError as error:
                kept["error"] = error

    thread = threading.Thread(target=work)
    thread.start()
    return thread, kept


def running(client, application):
    operations = client.admin.command("currentOp")["inprog"]
    return [one for one in operations if one.get("appName") == application and "hello" not in one["command"]]


@test
def nothing_is_loaded_from_elsewhere_and_nothing_is_refused(console, page):
    for view in VIEWS:
        page.open(console.view(view))
        page.find("h1")
        page.until_settled()
        names = page.script("return performance.getEntriesByType('resource').map((one) => one.name)")
        others = [name for name in names if not name.startswith(console.base)]
        assert not others, others
    assert page.complaints() == [], page.complaints()


@test
def charts_move_under_load(console, page):
    page.open(console.view("overview"))
    line = "return document.querySelector('[data-chart=documents] path.line.c1')?.getAttribute('d')"
    before = page.until(lambda: page.script(line), "a line of the chart of documents")
    with load(console):
        def inserted():
            text = page.find("[data-chart=documents] .key.c1 .key-value").text
            return text not in ("–", "0")

        page.until(inserted, "inserted documents")
        first = page.until(lambda: (now := page.script(line)) != before and now, "a line that moved")
        page.until(lambda: page.script(line) != first, "a line that moves on")
    # The values under the pointer, in all charts.
    page.script(
        "const plot = document.querySelector('[data-chart=operations] svg.plot'); const box = plot.getBoundingClientRect();"
        "plot.dispatchEvent(new PointerEvent('pointermove', {clientX: box.right - 20, clientY: box.top + 40}))"
    )
    assert page.find("[data-chart=memory] .chart-time").text, "the other charts show the same time"


@test
def charts_show_the_last_hour_after_a_restart(console, page):
    with console.client() as client:
        began = client.admin.command("hello")["localTime"]

        def times():
            return client.admin.command({"getDiagnosticHistory": 1, "points": 4000})["times"]

        # Ten seconds go to the disk together.
        page.until(lambda: times() and times()[-1] > began + datetime.timedelta(seconds=11), "a history of 11 seconds")
        until = times()[-1]
    console.server.stop()
    console.server.start()
    with console.client() as client:
        reply = client.admin.command(
            {"getDiagnosticHistory": 1, "after": until - datetime.timedelta(hours=1), "until": until}
        )
        assert reply["times"], "nothing is left of the run before"
        assert max(reply["counters"]["docs.inserted"]) >= 20_000, reply["counters"]["docs.inserted"]
    page.open(console.view("overview"))
    page.click("[data-range='1h']")
    oldest = "return document.querySelector('[data-chart=memory] path.line')?.getAttribute('d')"
    page.until(lambda: page.script(oldest), "a line over the last hour")


@test
def collections_and_the_use_of_indexes_are_shown(console, page):
    with console.client() as client:
        list(client.shop.orders.find({"customer": 5}))
        count = client.shop.orders.count_documents({})
    page.open(console.view("collections"))
    page.click("a", "shop")
    page.click("a", "orders")
    assert f"{count:,}" in page.find(".facts").text
    row = page.find("tr", "customer_1").text
    assert "{customer: 1}" in row and "KiB" in row, row
    uses = [one.text for one in page.all("tr") if "customer_1" in one.text]
    assert any(any(part.isdigit() and int(part) > 0 for part in one.split()) for one in uses), uses
    with console.client() as client:
        client.shop.orders.create_index("tags", name="for_nothing")
    page.open(console.view("collections", "shop", "orders"))
    row = page.find("tr", "for_nothing")
    row.find_element("tag name", "button").click()
    page.click("dialog button", "Drop")
    page.until(lambda: "for_nothing" not in page.find("table").text, "a table without the index")
    with console.client() as client:
        assert "for_nothing" not in client.shop.orders.index_information()


@test
def queries_are_written_as_in_a_shell(console, page):
    with console.client() as client:
        one = client.shop.orders.find_one({"town": "Oslo", "at": {"$exists": True}})
        many = client.shop.orders.count_documents({"town": "Oslo"})
    run_query(page, console, f"{{ _id: ObjectId('{one['_id']}'), town: /^os/i, }} // its comment")
    page.press(Keys.CONTROL, Keys.ENTER)
    page.find(".results h2", "1 document,")
    assert str(one["_id"]) in page.find(".results").text
    page.click("[data-shape=json]")
    assert f'ObjectId("{one["_id"]}")' in page.find(".results").text
    run_query(page, console, "{ town: 'Oslo' }")
    page.type("#q-limit", "0")
    page.click("button", "Run")
    page.find(".results h2", "100 documents, and more")
    page.click("button", "Next 100")
    page.find(".results h2", "200 documents")
    assert many > 200
    run_query(page, console, "{ town: }")
    page.click("button", "Run")
    page.find(".failure", "line 1, column 9")
    run_query(page, console, "{ town: {$nonsense: 1} }")
    page.click("button", "Run")
    page.find(".failure", "BadValue")
    page.click("[data-mode=command]")
    page.type("#q-command", "{ ping: 1 }")
    page.click("button", "Run")
    page.find("pre", "ok: 1")


@test
def explain_draws_the_plan_with_its_true_figures(console, page):
    question = {"town": "Oslo", "total": {"$gt": 300}}
    with console.client() as client:
        command = {"find": "orders", "filter": question, "limit": 50}
        explained = client.shop.command("explain", command, verbosity="executionStats")
    stats = explained["executionStats"]
    run_query(page, console, "{ town: 'Oslo', total: {$gt: 300} }")
    page.type("#q-limit", "50")
    page.click("button", "Explain")
    text = page.find("[data-stage=IXSCAN]").text
    assert f"keys examined\n{stats['totalKeysExamined']:,}" in text and "town_1_total_-1" in text, text
    text = page.find("[data-stage=FETCH]").text
    assert f"documents examined\n{stats['totalDocsExamined']:,}" in text, text
    run_query(page, console, "{ tags: 'gift', nothing: 1 }")
    page.click("button", "Explain")
    page.find("[data-stage=COLLSCAN]")
    page.find(".verdict", "The whole collection is read")
    page.click("[data-mode=aggregate]")
    page.type("#q-pipeline", "[{ $match: { town: 'Oslo' } }, { $group: { _id: '$customer', n: { $sum: 1 } } }]")
    page.click("button", "Explain")
    page.find("[data-stage='$group']")
    page.find("[data-stage=IXSCAN]")


@test
def an_operation_is_killed(console, page):
    thread, kept = never_ends(console)
    page.open(console.view("operations"))
    row = page.find("tr[data-op]", "report")
    operation = row.get_attribute("data-op")
    page.click(f"tr[data-op='{operation}'] .kill")
    page.click("dialog button", "End it")
    thread.join(30)
    assert not thread.is_alive(), "the operation goes on"
    assert kept["error"].code == INTERRUPTED, kept
    page.until(lambda: not page.all(f"tr[data-op='{operation}']"), "a list without the operation")


@test
def a_query_of_the_page_is_cancelled(console, page):
    page.open(console.view("query", "shop", "orders"))
    page.click("[data-mode=aggregate]")
    text = "[{ $lookup: { from: 'orders', pipeline: [{ $match: { nothing: 1 } }], as: 'x' } }, { $match: { 'x.y': 1 } }]"
    page.type("#q-pipeline", text)
    page.click("button", "Run")
    with console.client() as client:
        page.until(lambda: running(client, "Frond console"), "the operation in currentOp")
        page.click("button", "Cancel")
        page.find(".empty", "Cancelled")
        page.until(lambda: not running(client, "Frond console"), "the end of the operation")


@test
def a_slow_operation_is_found(console, page):
    with console.client() as client:
        stages = [{"$lookup": {"from": "orders", "pipeline": [{"$match": {"nothing": 1}}, {"$limit": 1}], "as": "x"}}]
        list(client.shop.orders.aggregate([{"$limit": 30}, *stages], comment="the slow one"))
    page.open(console.view("slow"))
    page.type("input[type=search]", "the slow one")
    row = page.find("tr.main", "shop.orders").text
    assert "aggregate" in row and ("ms" in row or " s" in row), row
    page.click("tr.detail summary")
    page.find("tr.detail pre", "$lookup")
    # A quick one is not in the log: only the profiler has it.
    with console.client() as client:
        client.shop.command("profile", 2)
        list(client.shop.orders.find({"nothing": 2}, comment="the recorded one").limit(1))
        client.shop.command("profile", 0)
    page.click("[data-reload]")
    page.type("input[type=search]", "the recorded one")
    row = page.find("tr.main", "shop.orders").text
    assert "find" in row and "COLLSCAN" in row, row


@test
def the_oplog_and_its_window_are_shown(console, page):
    page.open(console.view("changes"))
    facts = page.find(".facts").text
    assert "Entries" in facts and "Covers" in facts, facts
    with console.client() as client:
        client.shop.marks.insert_one({"mark": "seen in the oplog"})
    page.click("[data-reload]")
    page.find("table", "seen in the oplog")


@test
def the_replica_set_is_shown(console, page):
    page.open(console.view("set"))
    page.find(".facts", "Primary")
    page.find("table", "PRIMARY")
    page.find("table", "the only voter")
    with Console(console.server.binary) as standalone:
        page.open(standalone.view("set"))
        page.find(".empty", "no replica set")


@test
def everything_works_with_the_keyboard(console, page):
    page.open(console.view("overview"))
    page.find("h1", "Overview")
    for number, view in enumerate(VIEWS, 1):
        page.press(str(number))
        page.until(lambda view=view: page.find(".view").get_attribute("data-view") == view, view)
        assert page.find("nav a[aria-current]").get_attribute("data-view") == view
    page.press("?")
    page.find("dialog[open] h2", "Keys")
    page.press(Keys.ESCAPE)
    page.until(lambda: not page.all("dialog"), "a closed dialog")
    themes = []
    for _ in range(3):
        page.press("t")
        themes.append(page.script("return document.documentElement.dataset.theme"))
    assert themes == ["light", "dark", "auto"], themes
    # From the top of the page, each stop has a name and is seen.
    page.open(console.view("query"))
    page.find("#q-filter")
    names = set()
    for _ in range(40):
        page.press(Keys.TAB)
        found = page.script(
            "const one = document.activeElement; const labels = [...(one.labels ?? [])].map((l) => l.textContent).join(' ');"
            "return [one.tagName, (one.getAttribute('aria-label') ?? labels) || one.textContent || one.title,"
            " getComputedStyle(one).outlineStyle]"
        )
        if found[0] == "BODY":
            break
        assert found[1].strip(), found
        assert found[2] != "none", f"no visible focus: {found}"
        names.add(found[1])
    assert {"Run", "Explain", "Filter", "Database"} <= names, names


@test
def narrow_screens_show_everything_without_scrolling_sideways(console, page):
    try:
        for width in (390, 820, 1280):
            page.size(width, 844)
            for view in [*VIEWS, "collections/shop", "collections/shop/orders"]:
                page.open(console.view(view))
                page.find("h1")
                page.until_settled()
                wide = page.script("return document.documentElement.scrollWidth")
                assert wide <= width, f"{view} is {wide} wide on a screen of {width}"
    finally:
        page.size(1280, 900)


def log_in(page, console, user, password, db="admin"):
    page.open(console.base)
    page.type("#user", user)
    page.type("#password", password)
    page.type("#db", db)
    page.click("button", "Log in")


@test
def users_log_in_and_see_what_they_may(console, page):
    with Console(console.server.binary, ["--auth"]) as guarded:
        with guarded.client() as client:
            client.admin.command("createUser", "ann", pwd="pencil", roles=["root"])
        with guarded.client(username="ann", password="pencil") as client:
            client.admin.command("createUser", "bob", pwd="bob's", roles=[{"role": "read", "db": "shop"}])
            client.shop.orders.insert_one({"town": "Oslo"})
        log_in(page, guarded, "ann", "wrong")
        page.find(".failure", "Authentication failed")
        assert page.all(".frame") == []
        log_in(page, guarded, "ann", "pencil")
        page.find(".foot", "ann")
        page.until(lambda: page.find("[data-chart=memory] .key-value").text != "–", "a chart")
        assert page.script("return document.cookie") == "", "scripts cannot read the cookie"
        page.open(guarded.view("users"))
        page.find("table", "bob")
        page.click(".foot button", "ann")
        page.find("#user")
        log_in(page, guarded, "bob", "bob's")
        page.find(".failure", "Unauthorized")
        page.open(guarded.view("query", "shop", "orders"))
        page.click("button", "Run")
        page.find(".results h2", "1 document")
        with guarded.client(username="ann", password="pencil") as client:
            client.admin.command("dropUser", "bob")
        page.click("button", "Run")
        page.find(".failure")
        with open(guarded.server.log_path, encoding="utf-8") as log:
            text = log.read()
        assert "pencil" not in text and "bob's" not in text, "a password is in the log"
        assert "Failed to authenticate" in text


@test
def the_page_comes_over_tls_where_the_server_requires_it(console, _page):
    with tempfile.TemporaryDirectory() as folder:
        made = Certificates(folder)
        options = ["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", made.server]
        options += ["--tlsCAFile", made.ca.certificate, "--tlsAllowConnectionsWithoutCertificates"]
        with Console(console.server.binary, options, scheme="https", tls=made) as secure:
            with Browser(insecure=True) as page:
                page.open(secure.base)
                page.until(lambda: page.find("[data-chart=memory] .key-value").text != "–", "a chart")
            connection = http.client.HTTPConnection("localhost", secure.port)
            connection.request("GET", "/")
            reply = connection.getresponse()
            assert reply.status == 400 and b"TLS" in reply.read()


@test
def other_pages_and_requests_without_the_token_are_refused(console, _page):
    def ask(headers, path="/api/command", body='{"ping": 1}', method="POST"):
        connection = http.client.HTTPConnection("127.0.0.1", console.port)
        connection.request(method, path, body if method == "POST" else None, headers)
        reply = connection.getresponse()
        return reply.status, reply.read()

    _, state = ask({}, "/api/session", method="GET")
    token = {"x-frond-token": json.loads(state)["token"]}
    assert ask(token)[0] == 200
    assert ask({})[0] == 403
    assert ask({**token, "Host": "evil.example"})[0] == 403
    assert ask({**token, "Origin": "http://evil.example"})[0] == 403
    assert ask(token, body="{" + '"a":' * 100_000)[0] == 400


def photograph(console, folder):
    os.makedirs(folder, exist_ok=True)
    thread, _ = never_ends(console)
    for theme in ("light", "dark"):
        with Browser(theme=theme) as page, load(console):
            for width, height in ((1280, 900), (390, 844)):
                page.size(width, height)
                for view in [*VIEWS, "collections/shop", "collections/shop/orders"]:
                    page.open(console.view(view))
                    time.sleep(3)
                    page.driver.save_screenshot(f"{folder}/{view.replace('/', '-')}-{theme}-{width}.png")
                run_query(page, console, "{ town: 'Oslo', total: { $gt: 300 } }", "{ at: -1 }")
                page.click("button", "Explain")
                page.find(".plan")
                page.script("document.querySelector('.plan').scrollIntoView({block: 'center'})")
                page.driver.save_screenshot(f"{folder}/plan-{theme}-{width}.png")
    with console.client() as client:
        for one in running(client, "report"):
            client.admin.command("killOp", op=one["opid"])
    thread.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True)
    parser.add_argument("--screenshots")
    arguments = parser.parse_args()
    only = os.environ.get("FROND_TEST", "")
    passed = failed = 0
    with Console(arguments.server, replica_set="rs0") as console, Browser() as page:
        with console.client() as client:
            seed(client)
        for function in TESTS:
            name = function.__name__.replace("_", " ")
            if only not in name:
                continue
            try:
                function(console, page)
                passed += 1
                print(f"ok {passed + failed} - {name}", flush=True)
            except Exception as error:  # every failure of a test is reported, whatever it is
                failed += 1
                print(f"not ok {passed + failed} - {name}")
                trace = error.__traceback__
                while trace:
                    if trace.tb_frame.f_code.co_filename.startswith(HERE):
                        print(f"  # {os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}")
                    trace = trace.tb_next
                for line in f"{type(error).__name__}: {error}".splitlines()[:60]:
                    print(f"  # {line}", flush=True)
        if arguments.screenshots:
            photograph(console, arguments.screenshots)
    print(f"1..{passed + failed}")
    print(f"console: {passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
