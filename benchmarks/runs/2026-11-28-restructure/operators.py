import sys,glob,time,statistics,random
from pymongo import MongoClient
from bson.raw_bson import RawBSONDocument
from bson.codec_options import CodecOptions
PIDS=[int(x) for x in sys.argv[1:3]]; TURNS=int(sys.argv[3]); ONLY=sys.argv[4:]
raw=CodecOptions(document_class=RawBSONDocument)
A,B=[MongoClient(f"mongodb://127.0.0.1:{p}") for p in (27101,27102)]
colls=[]
def cpu(i):
    total=0
    for p in glob.glob(f"/proc/{PIDS[i]}/task/*/schedstat"):
        try: total+=int(open(p).read().split()[0])
        except OSError: pass
    return total/1e9
for c in (A,B):
    c.ab.drop_collection("t"); t=c.ab.t
    t.insert_many([{"_id":n,"k":n*7919%100003,"a":n%1000,"tags":[n%50,n%70],"pad":"x"*100} for n in range(100000)])
    t.create_index("k"); t.create_index([("a",1),("k",1)]); t.create_index([("tags",1),("k",1)])
    colls.append(c.ab.get_collection("t",codec_options=raw))
random.seed(1)
R=random.randrange
def point(t):
    for i in range(300): t.find_one({"_id":R(100000)})
def point_index(t):
    for i in range(300): t.find_one({"k":R(100003)})
def id_range100(t):
    for i in range(60):
        k=R(90000); list(t.find({"_id":{"$gte":k,"$lt":k+100}}).batch_size(1000))
def range100(t):
    for i in range(60):
        k=R(90000); list(t.find({"k":{"$gte":k,"$lt":k+100}}).batch_size(1000))
def scan1000(t):
    for i in range(15):
        k=R(90000); list(t.find({"k":{"$gte":k,"$lt":k+1000}}).batch_size(2000))
def covered(t):
    for i in range(15):
        k=R(90000); list(t.find({"k":{"$gte":k,"$lt":k+1000}},{"k":1,"_id":0}).batch_size(2000))
def count1000(t):
    for i in range(80):
        k=R(90000); t.count_documents({"k":{"$gte":k,"$lt":k+1000}})
def compound(t):
    for i in range(200): list(t.find({"a":R(1000)}).sort("k",1).limit(10))
def in_sort(t):
    for i in range(60): list(t.find({"a":{"$in":[R(1000) for _ in range(10)]}}).sort("k",1).limit(10))
def multikey(t):
    for i in range(100): list(t.find({"tags":R(50),"k":{"$gte":R(100000)}}).limit(20))
def distinct(t): t.distinct("a")
def distinct_plain(t): t.distinct("pad")
def group(t): list(t.aggregate([{"$group":{"_id":"$a","n":{"$sum":1},"k":{"$max":"$k"}}}]))
def sort_all(t): list(t.find({"k":{"$lt":20000}}).sort("pad",1).limit(100))
def proj_scan(t): list(t.find({},{"a":1}).batch_size(100000))
def full(t): t.count_documents({"pad":"y"})
def update_id(t):
    for i in range(150): t.update_one({"_id":R(100000)},{"$inc":{"n":1}})
def update_many(t): t.update_many({"a":R(1000)},{"$inc":{"n":1}})
fs=[point,point_index,id_range100,range100,scan1000,covered,count1000,compound,in_sort,multikey,distinct,distinct_plain,group,sort_all,proj_scan,full,update_id,update_many]
for f in fs:
    if ONLY and f.__name__ not in ONLY: continue
    for t in colls: f(t)
    ratios=[];cr=[];times=[[],[]]
    for turn in range(TURNS):
        d=[0,0];c=[0,0]; s=R(1<<30)
        for i in ((0,1) if turn%2 else (1,0)):
            random.seed(s)
            c0=cpu(i); t0=time.perf_counter(); f(colls[i]); d[i]=time.perf_counter()-t0; c[i]=cpu(i)-c0
            times[i].append(d[i])
        ratios.append(d[0]/d[1]); cr.append(c[0]/max(c[1],1e-9))
    print(f"{f.__name__:14} before {statistics.median(times[0])*1e3:8.2f} ms after {statistics.median(times[1])*1e3:8.2f} ms; speed after/before: {statistics.median(ratios):.3f}; server cpu before/after {statistics.median(cr):.3f}",flush=True)
