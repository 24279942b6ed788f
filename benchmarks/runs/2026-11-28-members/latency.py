# single-client majority latency of a set of one: lat.py BIN [BIN...]
import subprocess,time,sys,os,shutil,statistics
from pymongo import MongoClient, WriteConcern
def start(bin,port):
    d=f"/tmp/frond-lat{port}"; shutil.rmtree(d,ignore_errors=True); os.makedirs(d)
    p=subprocess.Popen([bin,"serve","--dbpath",d,"--port",str(port),"--replSet","rs0"],stdout=subprocess.DEVNULL,stderr=subprocess.DEVNULL)
    c=MongoClient(f"mongodb://127.0.0.1:{port}/?directConnection=true"); c.admin.command("ping"); c.admin.command("replSetInitiate",{})
    while not c.admin.command("hello")["isWritablePrimary"]: time.sleep(.05)
    return p,c
bins=sys.argv[1:]; R=[start(b,27911+i) for i,b in enumerate(bins)]
l=[[] for _ in bins]
for r in range(10):
    for i,(p,c) in enumerate(R):
        maj=c.t.get_collection("m",write_concern=WriteConcern("majority"))
        for k in range(400):
            t=time.perf_counter(); maj.insert_one({"_id":r*1000+k,"a":k}); l[i].append(time.perf_counter()-t)
for b,x in zip(bins,l): print(b,"median ms",round(statistics.median(x)*1000,4),"ratio",round(statistics.median(x)/statistics.median(l[0]),3))
for p,c in R: p.terminate(); p.wait()
