import sys, time, threading, random, datetime, subprocess, tempfile, os, statistics, json
import pymongo, bson
binary = sys.argv[1]; docs = int(sys.argv[2])
d = tempfile.mkdtemp(prefix="frond-drop-", dir=os.environ.get("FROND_DIR", "/tmp"))
p = subprocess.Popen([binary, "serve", "--dbpath", d, "--port", "28777", "--quiet"] if False else [binary, "serve", "--dbpath", d, "--port", "28777", "--cacheSizeGB", sys.argv[3]] , stdout=open(d + ".log", "w"), stderr=subprocess.STDOUT)
c = pymongo.MongoClient("mongodb://127.0.0.1:28777", serverSelectionTimeoutMS=30000)
db = c.t
HOUR = datetime.timedelta(hours=1); START = datetime.datetime(2030, 1, 1)
e = db.create_collection("e", partitioned={"by": "ts", "every": "1h"})
for f in ("a", "b", "c", "s"): e.create_index(f)
r = random.Random(1)
def batch(n, hour):
    base = START + hour * HOUR
    return [{"ts": base + datetime.timedelta(milliseconds=r.randrange(3_600_000)), "a": r.getrandbits(40), "b": r.getrandbits(40), "c": r.getrandbits(40), "s": "%030x" % r.getrandbits(80), "pad": "x" * 60} for _ in range(n)]
t0 = time.time()
for i in range(docs // 2000): e.insert_many(batch(2000, 0), ordered=False)
print("loaded", docs, "in", round(time.time() - t0), "s", flush=True)
for i in range(100): e.insert_many(batch(2000, 1), ordered=False)
c.admin.command("fsync")
stats = lambda: (db.command("dbStats", freeStorage=1).get("freeStorageSize"), db.command("dbStats").get("storageSize"), sum(os.path.getsize(os.path.join(d, f)) for f in os.listdir(d) if os.path.isfile(os.path.join(d, f))))
print("before", stats(), flush=True)
lat = []; stop = False
def work():
    cc = pymongo.MongoClient("mongodb://127.0.0.1:28777").t.e
    some = [x["a"] for x in cc.find({"ts": {"$gte": START + HOUR}}).limit(2000)]
    i = 0
    while not stop:
        t = time.perf_counter()
        if i % 2: cc.find_one({"a": random.choice(some), "ts": {"$gte": START + HOUR}})
        else: cc.insert_one(batch(1, 1)[0])
        lat.append((time.perf_counter(), time.perf_counter() - t)); i += 1
th = threading.Thread(target=work); th.start()
time.sleep(20)
t = time.perf_counter(); reply = db.command("dropPartition", "e", id=START); took = time.perf_counter() - t
print("drop", reply["nDocuments"], "documents in", round(took * 1000, 2), "ms", flush=True)
time.sleep(20); stop = True; th.join()
def q(xs, f): xs = sorted(xs); return round(xs[min(len(xs) - 1, int(len(xs) * f))] * 1000, 3)
before = [x for at, x in lat if at < t]; after = [x for at, x in lat if t <= at < t + 5]; later = [x for at, x in lat if at >= t + 5]
for name, xs in (("20 s before", before), ("5 s after", after), ("later", later)): print(name, len(xs), "p50", q(xs, .5), "p99", q(xs, .99), "max", q(xs, 1), flush=True)
print("after drop", stats()); c.admin.command("fsync"); time.sleep(1); print("after checkpoint", stats(), "count", e.count_documents({}), flush=True)
c.admin.command("fsync"); time.sleep(3); print("later", stats(), flush=True)
p.terminate(); p.wait()
