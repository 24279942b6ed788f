import subprocess,time,sys,os,shutil,statistics
from pymongo import MongoClient, WriteConcern
A,B=sys.argv[1:3]
def run(bin,port,mode):
    d=f"/tmp/frond-ab{port}"; shutil.rmtree(d,ignore_errors=True); os.makedirs(d)
    p=subprocess.Popen([bin,"serve","--dbpath",d,"--port",str(port),"--replSet","rs0"],stdout=subprocess.DEVNULL,stderr=subprocess.DEVNULL)
    c=MongoClient(f"mongodb://127.0.0.1:{port}/?directConnection=true"); c.admin.command("ping"); c.admin.command("replSetInitiate",{}); 
    while not c.admin.command("hello")["isWritablePrimary"]: time.sleep(.05)
    out={}
    maj=c.t.get_collection("m",write_concern=WriteConcern("majority")); l=[]
    for i in range(1500):
        t=time.perf_counter(); maj.insert_one({"_id":i,"a":i}); l.append(time.perf_counter()-t)
    out["majority ms"]=statistics.median(l)*1000
    w1=c.t.get_collection("w",write_concern=WriteConcern(1)); l=[]
    for i in range(3000):
        t=time.perf_counter(); w1.insert_one({"_id":i,"a":i}); l.append(time.perf_counter()-t)
    out["w1 ms"]=statistics.median(l)*1000
    b=c.t.get_collection("b",write_concern=WriteConcern(1)); b.create_index("a"); b.create_index([("b",1),("a",1)])
    t=time.perf_counter()
    for k in range(120): b.insert_many([{"_id":k*1000+i,"a":(k*7919+i*104729)%1000003,"b":i%97,"s":"x"*100} for i in range(1000)])
    out["batch docs/s"]=120000/(time.perf_counter()-t)
    c.close(); p.terminate(); p.wait(); return out
res={"A":[], "B":[]}
for r in range(3):
    for n,bn in (("A",A),("B",B)): res[n].append(run(bn,27901+(n=="B"),0))
for k in res["A"][0]:
    a=statistics.median(x[k] for x in res["A"]); b=statistics.median(x[k] for x in res["B"]); print(k,"A",round(a,3),"B",round(b,3),"B/A",round(b/a,3))
