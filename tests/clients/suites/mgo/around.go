package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/globalsign/mgo"
	"github.com/globalsign/mgo/bson"
	"github.com/globalsign/mgo/txn"
)

// Indexes, the catalog, pipelines, files, users, concurrency.
var around = []test{
	{"the server is asked about itself", func(db *mgo.Database) {
		session := db.Session
		must(session.Ping())
		info := get(session.BuildInfo())
		isTrue(info.VersionAtLeast(8, 0), "a version of today")
		var primary struct{ Hosts []string }
		must(session.Run("isMaster", &primary))
		members := max(len(primary.Hosts), 1)
		// It finds the others in the background.
		for len(session.LiveServers()) < members {
			time.Sleep(10 * time.Millisecond)
		}
		equal(len(session.LiveServers()), members)
		// The logs of all have the document; a secondary may apply it later.
		session.SetSafe(&mgo.Safe{W: members})
		must(db.C("one").Insert(bson.M{}))
		isTrue(slices.Contains(get(session.DatabaseNames()), "mgo"), "the database is listed")
		var status bson.M
		must(session.Run("serverStatus", &status))
		must(db.Run(bson.D{{Name: "collStats", Value: "one"}}, &status))
		equal(status["count"], 1)
		err := db.Run(bson.M{"nosuch": 1}, nil)
		equal(err.(*mgo.QueryError).Code, 59)
		for _, mode := range []mgo.Mode{mgo.Eventual, mgo.Monotonic, mgo.Nearest, mgo.Primary, mgo.SecondaryPreferred, mgo.Strong} {
			session.SetMode(mode, true)
			for get(db.C("one").Count()) != 1 {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}},
	{"indexes", func(db *mgo.Database) {
		c := db.C("orders")
		fill(c, 20)
		for _, index := range []mgo.Index{
			{Key: []string{"customer", "-placed"}, Background: true},
			{Key: []string{"lines.sku"}, Unique: true, DropDups: true},
			{Key: []string{"state"}, Sparse: true, Name: "by state"},
			{Key: []string{"placed"}, ExpireAfter: 50 * 365 * 24 * time.Hour},
			{Key: []string{"$text:customer"}, Weights: map[string]int{"customer": 3}, DefaultLanguage: "english"},
			{Key: []string{"$2d:at"}, Minf: -100, Maxf: 100, Bits: 20},
			{Key: []string{"total"}, PartialFilter: bson.M{"total": bson.M{"$gt": 5}}},
		} {
			must(c.EnsureIndex(index))
		}
		var names []string
		for _, index := range get(c.Indexes()) {
			names = append(names, index.Name)
		}
		slices.Sort(names)
		equal(names, []string{
			"_id_", "at_2d", "by state", "customer_1_placed_-1", "customer_text", "lines.sku_1", "placed_1", "total_1",
		})
		isTrue(mgo.IsDup(c.EnsureIndex(mgo.Index{Key: []string{"customer"}, Unique: true})), "customers repeat")
		must(c.DropIndex("customer", "-placed"))
		must(c.DropIndexName("by state"))
		must(c.DropAllIndexes())
		equal(len(get(c.Indexes())), 1)
	}},
	{"pipelines", func(db *mgo.Database) {
		c := db.C("orders")
		fill(c, 700)
		group := []bson.M{
			{"$group": bson.M{"_id": "$customer", "total": bson.M{"$sum": "$total"}, "count": bson.M{"$sum": 1}}},
			{"$sort": bson.M{"_id": 1}},
		}
		var sums []struct {
			ID    string `bson:"_id"`
			Total float64
			Count int
		}
		must(c.Pipe(group).AllowDiskUse().All(&sums))
		equal(len(sums), 7)
		equal([]any{sums[1].ID, sums[1].Total, sums[1].Count}, []any{"c1", 34750.0, 100})
		iter := c.Pipe([]bson.M{{"$match": bson.M{}}}).Batch(100).Iter()
		count := 0
		for one := (bson.M{}); iter.Next(&one); count++ {
		}
		must(iter.Close())
		equal(count, 700)
		var plan bson.M
		must(c.Pipe(group).Explain(&plan))
		isTrue(len(plan) > 1, "a plan")
	}},
	{"map and reduce", func(db *mgo.Database) {
		c := db.C("orders")
		fill(c, 70)
		job := &mgo.MapReduce{
			Map:    "function() { emit(this.customer, 1) }",
			Reduce: "function(key, values) { return Array.sum(values) }",
		}
		var result []struct {
			ID    string `bson:"_id"`
			Value float64
		}
		_ = get(c.Find(bson.M{"total": bson.M{"$lt": 35}}).MapReduce(job, &result))
		equal([]any{len(result), result[0].Value}, []any{7, 5.0})
		job.Out = bson.M{"replace": "counts"}
		info := get(c.Find(nil).MapReduce(job, nil))
		equal(info.Collection, "counts")
		equal(get(db.C("counts").Count()), 7)
	}},
	{"GridFS: files are written, read, listed and removed", func(db *mgo.Database) {
		fs := db.GridFS("fs")
		data := bytes.Repeat([]byte("0123456789abcdef"), 50_000)
		file := get(fs.Create("report.txt"))
		file.SetChunkSize(100_000)
		file.SetContentType("text/plain")
		file.SetMeta(bson.M{"kind": "report"})
		_ = get(file.Write(data))
		must(file.Close())
		equal(file.MD5(), "45507f17b0e39fc7a1dcf52c03928522")
		file = get(fs.Open("report.txt"))
		equal([]any{file.Size(), file.ContentType()}, []any{int64(len(data)), "text/plain"})
		isTrue(bytes.Equal(get(io.ReadAll(file)), data), "the bytes are the same")
		must(file.Close())
		file = get(fs.OpenId(file.Id()))
		_ = get(file.Seek(123_456, io.SeekStart))
		part := make([]byte, 16)
		_ = get(io.ReadFull(file, part))
		equal(part, data[123_456:123_472])
		must(file.Close())
		file = nil
		count := 0
		for iter := fs.Find(nil).Iter(); fs.OpenNext(iter, &file); count++ {
		}
		equal(count, 1)
		must(fs.Remove("report.txt"))
		equal(get(fs.Chunks.Count()), 0)
		_, err := fs.Open("report.txt")
		equal(err, mgo.ErrNotFound)
	}},
	{"a capped collection is tailed", func(db *mgo.Database) {
		c := db.C("log")
		must(c.Create(&mgo.CollectionInfo{Capped: true, MaxBytes: 100_000, MaxDocs: 1000}))
		must(c.Insert(bson.M{"n": 0}))
		iter := c.Find(nil).Tail(-1)
		var one struct{ N int }
		isTrue(iter.Next(&one) && one.N == 0, "the first one")
		var writer sync.WaitGroup
		writer.Go(func() {
			session := db.Session.Copy()
			defer session.Close()
			for n := 1; n <= 20; n++ {
				must(c.With(session).Insert(bson.M{"n": n}))
			}
		})
		for n := 1; n <= 20; n++ {
			isTrue(iter.Next(&one), "the next one")
			equal(one.N, n)
		}
		writer.Wait()
		must(iter.Close())
		iter = c.Find(bson.M{"n": bson.M{"$gte": 20}}).Tail(time.Second)
		isTrue(iter.Next(&one), "the last one")
		isTrue(!iter.Next(&one) && iter.Timeout(), "there is no other")
		must(iter.Close())
	}},
	{"collections and views", func(db *mgo.Database) {
		fill(db.C("orders"), 10)
		must(db.CreateView("large", "orders", []bson.M{{"$match": bson.M{"total": bson.M{"$gte": 8}}}}, nil))
		equal(get(db.C("large").Count()), 2)
		must(db.C("checked").Create(&mgo.CollectionInfo{
			Validator: bson.M{"n": bson.M{"$exists": true}}, ValidationLevel: "strict", ValidationAction: "error",
		}))
		equal(db.C("checked").Insert(bson.M{}).(*mgo.LastError).Code, 121)
		names := get(db.CollectionNames())
		slices.Sort(names)
		equal(names, []string{"checked", "large", "orders", "system.views"})
		ref := &mgo.DBRef{Collection: "orders", Id: "x"}
		must(db.C("orders").Insert(bson.M{"_id": "x", "ref": ref}))
		var doc bson.M
		must(db.FindRef(ref).One(&doc))
		must(db.C("orders").DropCollection())
		isTrue(db.C("never there").DropCollection() == nil, "a missing collection is dropped, too")
	}},
	{"users log in", func(db *mgo.Database) {
		user := &mgo.User{Username: "ann", Password: "pencil", Roles: []mgo.Role{mgo.RoleReadWrite}}
		must(db.UpsertUser(user))
		session := db.Session.Copy()
		defer session.Close()
		own := session.DB("mgo")
		must(own.Login("ann", "pencil"))
		must(own.C("orders").Insert(bson.M{}))
		own.Logout()
		isTrue(own.Login("ann", "crayon") != nil, "a wrong password")
		user.Password = "crayon"
		must(db.UpsertUser(user))
		must(own.Login("ann", "crayon"))
		own.Logout()
		must(db.RemoveUser("ann"))
		equal(db.RemoveUser("ann"), mgo.ErrNotFound)
	}},
	{"writes are locked and unlocked", func(db *mgo.Database) {
		session := db.Session
		must(session.Fsync(false))
		must(session.FsyncLock())
		must(session.FsyncUnlock())
		must(db.C("orders").Insert(bson.M{}))
	}},
	{"many sessions at once", func(db *mgo.Database) {
		var workers sync.WaitGroup
		failures := make(chan any, 16)
		for worker := range 16 {
			workers.Go(func() {
				defer func() {
					if found := recover(); found != nil {
						failures <- found
					}
				}()
				session := db.Session.Copy()
				defer session.Close()
				c := db.C("orders").With(session)
				for n := range 50 {
					must(c.Insert(bson.M{"_id": fmt.Sprintf("%d-%d", worker, n)}))
				}
			})
		}
		workers.Wait()
		close(failures)
		for found := range failures {
			panic(found)
		}
		equal(get(db.C("orders").Count()), 800)
	}},
	{"transactions of the package txn", func(db *mgo.Database) {
		accounts := db.C("accounts")
		must(accounts.Insert(bson.M{"_id": "ann", "balance": 100}, bson.M{"_id": "bob", "balance": 0}))
		runner := txn.NewRunner(db.C("txns"))
		runner.ChangeLog(db.C("changes"))
		move := func(amount int) error {
			return runner.Run([]txn.Op{
				{C: "accounts", Id: "ann", Assert: bson.M{"balance": bson.M{"$gte": amount}}, Update: bson.M{"$inc": bson.M{"balance": -amount}}},
				{C: "accounts", Id: "bob", Update: bson.M{"$inc": bson.M{"balance": amount}}},
				{C: "moves", Id: amount, Assert: txn.DocMissing, Insert: bson.M{"amount": amount}},
			}, "", nil)
		}
		must(move(60))
		equal(move(50), txn.ErrAborted)
		must(move(40))
		must(runner.ResumeAll())
		var balances []int
		must(accounts.Find(nil).Distinct("balance", &balances))
		equal(balances, []int{0, 100})
		equal(get(db.C("moves").Count()), 2)
	}},
}
