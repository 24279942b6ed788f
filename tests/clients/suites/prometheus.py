"""Metrics, health and traces, as Prometheus, an orchestrator and a collector of OpenTelemetry read them."""

import base64
import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request

import pymongo
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from harness.ports import free_port
from harness.server import Server
from harness.tap import equal, run, test
from harness.waiting import PATIENCE, wait_until

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
DASHBOARD = os.path.join(ROOT, "docs", "grafana", "frond.json")
TOOLS = os.path.join(ROOT, ".cache", "prometheus", "usr", "bin")


def read(port, path, user=None):
    """The status and the text that a path has."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if user:
        request.add_header("Authorization", "Basic " + base64.b64encode(user.encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def use(client):
    """A little of everything that the dashboard shows."""
    shop = client.shop
    shop.orders.create_index("item")
    shop.orders.insert_many([{"_id": n, "item": n % 7, "text": "x" * 200} for n in range(500)])
    # From here on pages are read, too.
    client.admin.command("fsync")
    equal(shop.orders.count_documents({"item": 3}), 71)
    equal(len(list(shop.orders.find({"item": 2}).limit(5))), 5)
    shop.orders.update_many({"item": 1}, {"$inc": {"sold": 1}})
    shop.orders.delete_many({"item": 6})
    list(shop.orders.find({"text": {"$regex": "^y"}}))
    shop.orders.drop_indexes()
    shop.orders.create_index("item")
    shop.orders.find_one({"item": 4})


def series(text):
    """The values of a text in Prometheus' format, by the series."""
    values = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            values[name] = float(value)
    return values


@test
def metrics_count_what_a_client_did(context):
    server, port = context
    with pymongo.MongoClient(server.uri) as client:
        before = series(read(port, "/metrics")[1])
        use(client)
    status, text = read(port, "/metrics")
    equal(status, 200)
    after = series(text)

    def grew(name, at_least):
        difference = after[name] - before.get(name, 0)
        assert difference >= at_least, f"{name} grew by {difference}"

    orders = '{database="shop",collection="orders"'
    grew('frond_operations_total{kind="insert"}', 500)
    grew('mongodb_ss_opcounters{legacy_op_type="insert"}', 500)
    grew('frond_documents_total{operation="inserted"}', 500)
    grew('frond_documents_total{operation="deleted"}', 71)
    grew('frond_operation_duration_seconds_count{class="reads"}', 3)
    grew(f'frond_collection_operations_total{orders},kind="insert"}}', 1)
    grew(f'mongodb_top_queries_count{orders}}}', 2)
    grew("frond_commits_total", 1)
    grew("frond_scanned_documents_total", 429)
    grew(f'frond_index_accesses_total{orders},index="item_1"}}', 1)
    equal(after[f"frond_collection_documents{orders}}}"], 429)
    equal(after["mongodb_up"], 1)
    assert after["frond_resident_memory_bytes"] > 10 << 20
    assert after['mongodb_ss_wt_cache_maximum_bytes_configured'] > 1 << 20


@test
def promtool_finds_nothing_to_complain_of(context):
    _, port = context

    def check(path):
        promtool = os.path.join(TOOLS, "promtool")
        text = read(port, path)[1]
        done = subprocess.run(
            [promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=PATIENCE
        )
        return done.stdout + done.stderr

    equal(check("/metrics?collect[]=frond"), "")
    # The exporter's names are what they are. All else, such as a line that cannot be parsed, does not begin so.
    complaints = [line for line in check("/metrics").splitlines() if not line.startswith("mongodb_")]
    equal(complaints, [])
    both = read(port, "/metrics?collect%5B%5D=frond&collect[]=mongodb")[1]
    assert "\nfrond_uptime_seconds" in both and "\nmongodb_up" in both
    assert "\nfrond_" not in read(port, "/metrics?collect%5B%5D=mongodb")[1]
    for wrong in ("collect[]=other", "collect[]=frond&collect[]=other"):
        equal(read(port, f"/metrics?{wrong}")[0], 400, wrong)


def expressions():
    """The queries of the dashboard, each with the title of its panel."""
    with open(DASHBOARD, encoding="utf-8") as file:
        panels = json.load(file)["panels"]
    for panel in panels:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"].replace("$__rate_interval", "20s").replace("$instance", ".*")


@test
def prometheus_scrapes_and_the_dashboard_answers(context):
    server, port = context
    folder = os.path.join(server.folder, "prometheus")
    os.makedirs(folder)
    config = os.path.join(folder, "prometheus.yml")
    with open(config, "w", encoding="ascii") as file:
        job = {"job_name": "frond", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        # JSON is YAML.
        json.dump({"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [job]}, file)
    own = free_port()
    command = [
        os.path.join(TOOLS, "prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{own}",
        "--log.level=error",
    ]
    log = open(os.path.join(folder, "log"), "wb")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def query(expression):
        try:
            status, text = read(own, "/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        except OSError:
            return []
        if status == 503:
            return []
        reply = json.loads(text)
        equal(reply["status"], "success", expression)
        return reply["data"]["result"]

    try:
        wait_until("Prometheus finds the target up", lambda: query('up{job="frond"} == 1'))
        with pymongo.MongoClient(server.uri) as client:

            def answers(expression):
                client.drop_database("shop")
                use(client)
                # A rate without a change, such as 0 / 0, is no answer.
                found = query(expression)
                return [one for one in found if one["value"][1] != "NaN"]

            queries = list(expressions())
            assert len(queries) > 30
            for title, expression in queries:
                wait_until(f"{title}: {expression}", lambda expression=expression: answers(expression))
    finally:
        process.terminate()
        process.wait(PATIENCE)
        log.close()


@test
def health_is_told_without_a_login(context):
    server, port = context
    equal(read(port, "/health/live"), (200, '{"status":"live"}'))
    equal(read(port, "/health/ready"), (200, '{"status":"ready","writable":true}'))
    http_port = free_port()
    options = ["--auth", "--httpPort", str(http_port)]
    with Server(server.binary, options) as guarded:
        guarded.start()
        with pymongo.MongoClient(guarded.uri) as client:
            client.admin.command("createUser", "root", pwd="secret", roles=["root"])
        with pymongo.MongoClient(guarded.uri, username="root", password="secret") as client:
            client.admin.command("createUser", "watch", pwd="er", roles=["clusterMonitor"])
            client.admin.command("createUser", "other", pwd="one", roles=["readWriteAnyDatabase"])
        equal(read(http_port, "/health/ready")[0], 200)
        equal(read(http_port, "/metrics")[0], 401)
        equal(read(http_port, "/metrics", "watch:wrong")[0], 401)
        equal(read(http_port, "/metrics", "other:one")[0], 403)
        status, text = read(http_port, "/metrics", "watch:er")
        equal(status, 200)
        assert "frond_uptime_seconds" in text
        guarded.stop()


class Collector(http.server.BaseHTTPRequestHandler):
    """Receives spans by OTLP over HTTP."""

    spans = []

    def do_POST(self):  # noqa: N802, the name that the library calls
        equal(self.path, "/v1/traces")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            named = {a.key: a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans.extend((named, span) for span in scope.spans)
        reply = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        pass


@test
def commands_become_spans_of_the_clients_trace(context):
    server, _ = context
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{collector.server_address[1]}"
        # Only what a client's sampled trace asks for: the share of others is 0.
        options = ["--otlpEndpoint", endpoint, "--traceSampling", "0"]
        with Server(server.binary, options) as traced:
            traced.start()
            with pymongo.MongoClient(traced.uri, appname="shop") as client:
                orders = client.shop.orders
                orders.insert_one({"_id": 0})
                orders.insert_one({"_id": 1}, comment={"traceparent": f"00-{trace}-{parent}-01", "page": "cart"})
                orders.insert_one({"_id": 2}, comment={"traceparent": f"00-{trace}-{parent}-00"})
                list(orders.find({}, comment=f"app='shop',traceparent='00-{trace}-{parent}-01'"))
                try:
                    orders.insert_one({"_id": 1}, comment={"traceparent": f"00-{trace}-{parent}-01"})
                except pymongo.errors.DuplicateKeyError:
                    pass
                try:
                    client.shop.command("find", "orders", filter=1, comment=f"traceparent='00-{trace}-{parent}-01'")
                except pymongo.errors.OperationFailure:
                    pass
            wait_until("four spans", lambda: len(Collector.spans) >= 4)
            traced.stop()
        collector.shutdown()
    equal(len(Collector.spans), 4, "spans")
    found = {}
    for resource, span in Collector.spans:
        equal(resource["service.name"], "frond")
        equal((span.trace_id.hex(), span.parent_span_id.hex()), (trace, parent))
        assert span.end_time_unix_nano > span.start_time_unix_nano > 1.7e18
        attributes = {a.key: a.value.string_value for a in span.attributes}
        found.setdefault(span.name, []).append((span, attributes))
    equal(sorted(found), ["find orders", "insert orders"])
    equal(len(found["insert orders"]), 2)
    _, insert = found["insert orders"][0]
    equal(
        {name: insert[name] for name in ("db.namespace", "db.collection.name", "db.operation.name", "mongodb.app_name")},
        {
            "db.namespace": "shop",
            "db.collection.name": "orders",
            "db.operation.name": "insert",
            "mongodb.app_name": "shop",
        },
    )
    assert "cart" in insert["mongodb.comment"], insert
    failed = [span for span, attributes in found["find orders"] if attributes.get("db.response.status_code")]
    equal([span.status.code for span in failed], [2], "the failed find")


def main():
    port = free_port()
    with Server(os.environ["FROND_BINARY"], ["--httpPort", str(port)]) as server:
        server.start()
        try:
            run((server, port))
        finally:
            server.stop()


if __name__ == "__main__":
    sys.exit(main())
