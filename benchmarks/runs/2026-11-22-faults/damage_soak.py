"""Damages 20 blocks in 5 of 10 collections, and serves the store for an hour, with three restarts.

    damage_soak.py SERVER FOLDER MINUTES

Two servers run side by side: one on the damaged store, one on an undamaged copy. All ten collections are written and
read on both. The speed of the five undamaged collections is compared, in turns.
"""
import json, os, re, shutil, signal, statistics, subprocess, sys, time, random
import pymongo
from pymongo.errors import PyMongoError, BulkWriteError

SERVER, FOLDER, MINUTES = sys.argv[1], sys.argv[2], float(sys.argv[3])
COLLECTIONS, DAMAGED, BLOCKS, DOCUMENTS = 10, 5, 4, 60_000
PORTS = {"damaged": 27231, "whole": 27232}
rng = random.Random(15)


class Server:
    def __init__(self, name):
        self.name, self.data = name, f"{FOLDER}/{name}"
        os.makedirs(self.data, exist_ok=True)
        self.process = None

    def start(self):
        began = time.monotonic()
        self.process = subprocess.Popen(
            [SERVER, "serve", "--dbpath", self.data, "--port", str(PORTS[self.name]), "--cacheSizeGB", "0.25",
             "--quiet", "--logpath", f"{FOLDER}/{self.name}.log", "--logappend"],
            stdout=subprocess.DEVNULL)
        self.client = pymongo.MongoClient("127.0.0.1", PORTS[self.name], serverSelectionTimeoutMS=60000, retryWrites=False)
        self.client.admin.command("ping")
        return time.monotonic() - began

    def stop(self, how=signal.SIGTERM):
        self.client.close()
        self.process.send_signal(how)
        self.process.wait()

    @property
    def db(self):
        return self.client.shop


def document(number):
    return {"_id": number, "a": number % 1000, "text": rng.randbytes(90).hex()}


def fill(server):
    for index in range(COLLECTIONS):
        server.db.create_collection(f"c{index}", pageSize=1 << 20)
        collection = server.db[f"c{index}"]
        server.db.command({"createIndexes": f"c{index}", "indexes": [{"key": {"a": 1, "text": 1}, "name": "a", "pageSize": 1 << 20}]})
        for start in range(0, DOCUMENTS, 1000):
            collection.insert_many([document(number) for number in range(start, start + 1000)])


def verify(data):
    text = subprocess.run([SERVER, "verify", "--dbpath", data], capture_output=True, text=True).stdout
    blocks = {}
    for found in re.finditer(r"problem: shop\.(c\d+): .*data\.frond is damaged at byte (\d+)", text):
        blocks[int(found[2])] = found[1]
    return blocks, text


def damage(data):
    path = f"{data}/data.frond"
    whole = open(path, "rb").read()

    def flip(places):
        changed = bytearray(whole)
        for place in places:
            changed[place] ^= 1
            changed[place + 1] ^= 1
        open(path, "wb").write(changed)

    places = list(range(40_000, len(whole) - 2, max(len(whole) // 150, 8192)))
    flip(places)
    blocks, text = verify(data)
    if ", tree 0:" in text:
        sys.exit("a block of the catalog was hit; choose other places")
    chosen = []
    for index in range(DAMAGED):
        own = sorted(block for block, name in blocks.items() if name == f"c{index}")
        for block in own[:: max(len(own) // BLOCKS, 1)][:BLOCKS]:
            chosen.append(min(place for place in places if place >= block))
    flip(chosen)
    return verify(data)[0]


def burst(server, names, numbers, counts):
    """Inserts, updates, finds and deletes; returns the seconds."""
    began = time.monotonic()
    for name in names:
        collection = server.db[name]
        try:
            collection.insert_many([document(number) for number in numbers], ordered=False)
        except BulkWriteError as error:
            codes = [e["code"] for e in error.details["writeErrors"]]
            counts["insert errors"] = counts.get("insert errors", 0) + len(codes)
            assert set(codes) == {301} and name in DAMAGED_NAMES, (name, set(codes))
        for _ in range(100):
            number = rng.randrange(numbers.start)
            for what in (lambda: collection.find_one({"_id": number}),
                         lambda: collection.update_one({"_id": number}, {"$inc": {"n": 1}}),
                         lambda: list(collection.find({"a": number % 1000}).limit(10))):
                try:
                    what()
                    counts["ok"] = counts.get("ok", 0) + 1
                except PyMongoError as error:
                    assert getattr(error, "code", None) == 301 and name in DAMAGED_NAMES, (name, error)
                    counts["301"] = counts.get("301", 0) + 1
    return time.monotonic() - began


DAMAGED_NAMES = {f"c{i}" for i in range(DAMAGED)}
HEALTHY = [f"c{i}" for i in range(DAMAGED, COLLECTIONS)]
first = Server("whole")
shutil.rmtree(FOLDER, ignore_errors=True)
os.makedirs(first.data)
first.start(); fill(first); first.stop()
shutil.copytree(first.data, f"{FOLDER}/damaged")
second = Server("damaged")
blocks = damage(second.data)
assert len(blocks) == DAMAGED * BLOCKS, blocks
print(json.dumps({"damaged blocks": {str(k): v for k, v in blocks.items()}}), flush=True)
first.start(); second.start()
end = time.monotonic() + MINUTES * 60
restarts = [time.monotonic() + MINUTES * 60 * part for part in (0.25, 0.5, 0.75)]
number, ratios, counts, opened = DOCUMENTS, [], {}, []
while time.monotonic() < end:
    numbers = range(number, number + 200); number += 200
    times = {}
    order = [first, second]; rng.shuffle(order)
    for server in order:
        times[server.name] = burst(server, HEALTHY, numbers, {} if server is first else counts)
    ratios.append(times["whole"] / times["damaged"])
    # Outside of the times; both get the same work, whose flushes run beside the next round.
    burst(first, sorted(DAMAGED_NAMES), numbers, {})
    burst(second, sorted(DAMAGED_NAMES), numbers, counts)
    if restarts and time.monotonic() > restarts[0]:
        restarts.pop(0)
        second.stop(signal.SIGKILL if len(restarts) % 2 else signal.SIGTERM)
        opened.append(round(second.start(), 3))
status = second.client.admin.command("serverStatus")["frond"]
listed = {block.get("offset"): block.get("ns") for block in status["damage"]}
reports = {name: second.db.command("validate", name)["valid"] for name in second.db.list_collection_names()}
answers = {name: second.db[name].count_documents({}) for name in HEALTHY}
expected = {name: first.db[name].count_documents({}) for name in HEALTHY}
assert answers == expected, (answers, expected)
first.stop(); second.stop()
after, text = verify(second.data)
print(json.dumps({
    "minutes": MINUTES, "rounds": len(ratios), "documents in each collection": number,
    "speed of undamaged collections beside an undamaged store, median": round(statistics.median(ratios), 3),
    "operations": counts, "seconds to open after restarts": opened,
    "listed by serverStatus": len(listed), "valid": reports,
    "named by verify": len(after), "the same blocks": after == blocks}, indent=1))
