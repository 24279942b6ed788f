import sys
from pymongo import MongoClient
out={}
for name,port in (("before",27101),("after",27102)):
    c=MongoClient(f"mongodb://127.0.0.1:{port}").plans; c.drop_collection("c"); t=c.c
    for k in ([("a",1),("b",1)],[("c",-1),("b",-1)],[("d.x",1),("d.y",1)],[("n",1)],[("e",1)],[("t",1),("b",1)]): t.create_index(k)
    N=2000
    docs=[]
    for i in range(N):
        d={"_id":i,"a":i%20,"b":i*7%N,"c":i%25,"d":{"y":i%10,"x":i%40,"z":"no"},"e":i%50,"t":[i%20,i%19],"s":f"text {i%9}"}
        if i%4==1: d["n"]=None
        elif i%4: d["n"]=i%100
        docs.append(d)
    t.insert_many(docs)
    def find(label,f,sort=None,limit=0,proj=None):
        cmd={"find":"c","filter":f}
        if sort: cmd["sort"]=sort
        if limit: cmd["limit"]=limit
        if proj: cmd["projection"]=proj
        run(label,cmd)
    def outline(s):
        o=s["stage"]
        if "inputStage" in s: o+=" > "+outline(s["inputStage"])
        if "inputStages" in s: o+=" > ["+", ".join(outline(x) for x in s["inputStages"])+"]"
        return o
    def run(label,cmd):
        e=c.command({"explain":cmd,"verbosity":"executionStats"})["executionStats"]
        out.setdefault(label,{})[name]=(e["totalKeysExamined"],e["totalDocsExamined"],outline(e["executionStages"]))
    find("$in + sort, limit 10",{"a":{"$in":[1,2,3]}},{"b":1},10)
    find("$in of an array field + sort, limit 30",{"t":{"$in":[1,2]}},{"b":1},30)
    find("$or + sort, limit 10",{"$or":[{"a":1},{"c":2}]},{"b":1},10)
    find("$or, an index each",{"$or":[{"a":1,"s":"text 1"},{"c":2}]})
    find("condition on keys",{"a":5,"b":{"$not":{"$mod":[3,0]}}})
    find("covered dotted",{"d.x":3},proj={"d.y":1,"d.x":1,"_id":0})
    find("$not range",{"e":{"$not":{"$gte":3}}})
    find("$nor ranges",{"$nor":[{"e":{"$gt":10}},{"e":{"$lt":9}}]})
    find("$expr >",{"$expr":{"$gt":["$e",47]}})
    find("$expr both ends",{"$expr":{"$and":[{"$gte":["$e",3]},{"$gt":[5,"$e"]}]}})
    run("distinct e",{"distinct":"c","key":"e"})
    run("distinct a > 15",{"distinct":"c","key":"a","query":{"a":{"$gt":15}}})
    run("count a=5, b mod",{"count":"c","query":{"a":5,"b":{"$mod":[3,0]}}})
    run("count _id range",{"count":"c","query":{"_id":{"$gte":100,"$lt":300}}})
    run("count n null",{"count":"c","query":{"n":None}})
for l,v in out.items(): print("|",l,"|","%d keys, %d docs"%v["before"][:2],"|","%d keys, %d docs"%v["after"][:2],"|",v["after"][2],"|",v["before"][2],"|")
