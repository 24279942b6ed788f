import subprocess, os, sys, time, shutil, signal
from pymongo import MongoClient
from pymongo.errors import *
BIN=os.environ.get("FROND","frond")
BASE=int(os.environ.get("BASE","27410"))
ROOT=os.environ.get("ROOT","/tmp/frond-set")
class Node:
    def __init__(s,i,extra=()):
        s.i=i; s.port=BASE+i; s.dir=f"{ROOT}/{i}"; os.makedirs(s.dir,exist_ok=True); s.p=None; s.extra=list(extra)
    def start(s):
        s.p=subprocess.Popen([BIN,"serve","--dbpath",s.dir,"--port",str(s.port),"--replSet","rs0","--logpath",s.dir+"/log","--logappend"]+s.extra,stdout=subprocess.DEVNULL,stderr=open(s.dir+"/err","a"))
        return s
    def client(s,**k):
        k.setdefault("serverSelectionTimeoutMS",10000); return MongoClient(f"mongodb://127.0.0.1:{s.port}/?directConnection=true",**k)
    def kill(s): s.p.kill(); s.p.wait()
    def stop(s): s.p.terminate(); s.p.wait()
def fresh(n,extra=()):
    shutil.rmtree(ROOT,ignore_errors=True)
    return [Node(i,extra).start() for i in range(n)]
def config(nodes,**k):
    return {"_id":"rs0","members":[dict({"_id":n.i,"host":f"127.0.0.1:{n.port}"}) for n in nodes]}
def url(nodes): return "mongodb://"+",".join(f"127.0.0.1:{n.port}" for n in nodes)+"/?replicaSet=rs0"
import time,statistics,os,threading
from pymongo import WriteConcern
def measure(n):
    nodes=fresh(n)
    try:
        for x in nodes: x.client().admin.command("ping")
        nodes[0].client().admin.command("replSetInitiate",config(nodes) if n>1 else {"_id":"rs0","members":[{"_id":0,"host":f"127.0.0.1:{nodes[0].port}"}]})
        m=MongoClient(url(nodes)); maj=m.t.get_collection("m",write_concern=WriteConcern("majority",j=True)); l=[]
        maj.insert_one({})
        for i in range(1000):
            t=time.perf_counter(); maj.insert_one({"_id":i}); l.append(time.perf_counter()-t)
        b=m.t.get_collection("b",write_concern=WriteConcern("majority",j=True)); b.create_index("a"); b.create_index([("b",1),("a",1)])
        def load(k0):
            for k in range(40): b.insert_many([{"_id":(k0*40+k)*1000+i,"a":(k*7919+i*104729)%1000003,"b":i%97,"s":"x"*100} for i in range(1000)])
        t=time.perf_counter(); th=[threading.Thread(target=load,args=(j,)) for j in range(4)]; [x.start() for x in th]; [x.join() for x in th]
        return statistics.median(l)*1000, 160000/(time.perf_counter()-t)
    finally:
        for x in nodes: x.kill()
r={1:[],3:[]}
for k in range(3):
    for n in (1,3): r[n].append(measure(n))
for j,name in ((0,"majority insert ms"),(1,"bulk docs/s, 4 clients")):
    a=statistics.median(x[j] for x in r[1]); c=statistics.median(x[j] for x in r[3]); print(name,"one",round(a,3),"three",round(c,3),"ratio",round(c/a,3))
