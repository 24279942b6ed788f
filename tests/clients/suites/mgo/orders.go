package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/globalsign/mgo"
	"github.com/globalsign/mgo/bson"
)

type line struct {
	Sku   string
	Count int
}

type order struct {
	ID       bson.ObjectId `bson:"_id"`
	Customer string
	Total    float64
	Lines    []line `bson:",omitempty"`
	Placed   time.Time
	State    string `bson:",omitempty"`
}

func newOrder(number int) order {
	return order{
		ID:       bson.NewObjectId(),
		Customer: fmt.Sprintf("c%d", number%7),
		Total:    float64(number),
		Lines:    []line{{Sku: fmt.Sprintf("s%d", number), Count: number % 3}},
		Placed:   time.Unix(1_400_000_000+int64(number), 0).UTC(),
	}
}

func fill(c *mgo.Collection, count int) []order {
	var all []order
	var docs []any
	for number := range count {
		one := newOrder(number)
		all = append(all, one)
		docs = append(docs, one)
	}
	must(c.Insert(docs...))
	return all
}

// Documents: written, found, changed, removed.
var orders = []test{
	{"documents are inserted and found as structs", func(db *mgo.Database) {
		c := db.C("orders")
		all := fill(c, 20)
		var found order
		must(c.FindId(all[3].ID).One(&found))
		found.Placed = found.Placed.UTC()
		equal(found, all[3])
		var list []order
		must(c.Find(bson.M{"total": bson.M{"$gte": 5, "$lt": 8}}).Sort("-total").All(&list))
		equal(len(list), 3)
		equal(list[0].Total, 7.0)
		equal(c.Find(bson.M{"customer": "nobody"}).One(&found), mgo.ErrNotFound)
		err := c.Insert(all[0])
		isTrue(mgo.IsDup(err), "an order is there already")
		equal(err.(*mgo.LastError).Code, 11000)
	}},
	{"documents are updated, upserted and removed", func(db *mgo.Database) {
		c := db.C("orders")
		all := fill(c, 10)
		must(c.Update(bson.M{"total": 1}, bson.M{"$set": bson.M{"state": "paid"}}))
		must(c.UpdateId(all[2].ID, bson.M{"$push": bson.M{"lines": line{"extra", 1}}}))
		equal(c.Update(bson.M{"total": 99}, bson.M{"$set": bson.M{"a": 1}}), mgo.ErrNotFound)
		info := get(c.UpdateAll(bson.M{"total": bson.M{"$lt": 5}}, bson.M{"$set": bson.M{"state": "paid"}}))
		equal([]int{info.Matched, info.Updated}, []int{5, 4})
		info = get(c.Upsert(bson.M{"_id": "new"}, bson.M{"$set": bson.M{"total": 1000}}))
		equal(info.UpsertedId, "new")
		info = get(c.UpsertId("new", bson.M{"$inc": bson.M{"total": 1}}))
		equal([]any{info.UpsertedId, info.Updated}, []any{nil, 1})
		must(c.UpdateId("new", bson.M{"total": 5, "replaced": true}))
		var raw bson.M
		must(c.FindId("new").One(&raw))
		equal(raw, bson.M{"_id": "new", "total": 5, "replaced": true})
		must(c.RemoveId("new"))
		must(c.Remove(bson.M{"total": 9}))
		equal(c.RemoveId("new"), mgo.ErrNotFound)
		equal(get(c.RemoveAll(bson.M{"state": "paid"})).Removed, 5)
		equal(get(c.Count()), 4)
		err := c.UpdateId(all[7].ID, bson.M{"$inc": bson.M{"customer": 1}})
		equal(err.(*mgo.LastError).Code, 14)
	}},
	{"bulk operations, ordered and unordered", func(db *mgo.Database) {
		c := db.C("orders")
		bulk := c.Bulk()
		bulk.Insert(bson.M{"_id": 1}, bson.M{"_id": 2}, bson.M{"_id": 3})
		bulk.Update(bson.M{"_id": 1}, bson.M{"$set": bson.M{"a": 1}}, bson.M{"_id": 2}, bson.M{"$set": bson.M{"a": 2}})
		bulk.Upsert(bson.M{"_id": 4}, bson.M{"$set": bson.M{"a": 4}})
		bulk.UpdateAll(bson.M{}, bson.M{"$set": bson.M{"b": 1}})
		bulk.RemoveAll(bson.M{"_id": bson.M{"$gt": 3}})
		result := get(bulk.Run())
		equal([]int{result.Matched, result.Modified}, []int{8, 6})
		equal(get(c.Count()), 3)
		bulk = c.Bulk()
		bulk.Unordered()
		bulk.Insert(bson.M{"_id": 1}, bson.M{"_id": 5}, bson.M{"_id": 2}, bson.M{"_id": 6})
		_, err := bulk.Run()
		isTrue(mgo.IsDup(err), "all errors are of duplicates")
		var failed *mgo.BulkError
		isTrue(errors.As(err, &failed), "the error lists its cases")
		equal([]int{len(failed.Cases()), failed.Cases()[0].Index, failed.Cases()[1].Index}, []int{2, 0, 2})
		equal(get(c.Count()), 5)
	}},
	{"queries: order, part, projection, hint, comment, limit of time", func(db *mgo.Database) {
		c := db.C("orders")
		fill(c, 100)
		must(c.EnsureIndexKey("customer", "-total"))
		var list []bson.M
		query := c.Find(bson.M{"customer": "c3"}).Sort("customer", "-total").Skip(2).Limit(3).Select(bson.M{"total": 1, "_id": 0})
		must(query.Hint("customer", "-total").Comment("a report").SetMaxTime(time.Minute).All(&list))
		equal(list, []bson.M{{"total": 80.0}, {"total": 73.0}, {"total": 66.0}})
		equal(get(query.Count()), 3)
		var names []string
		must(c.Find(bson.M{"total": bson.M{"$lt": 3}}).Distinct("customer", &names))
		equal(names, []string{"c0", "c1", "c2"})
		var plan struct {
			QueryPlanner struct {
				WinningPlan bson.M `bson:"winningPlan"`
			} `bson:"queryPlanner"`
		}
		must(c.Find(bson.M{"customer": "c3"}).Explain(&plan))
		equal(plan.QueryPlanner.WinningPlan["stage"], "FETCH")
		must(c.Find(bson.M{"customer": "C3"}).Collation(&mgo.Collation{Locale: "en", Strength: 2}).One(&list[0]))
		must(c.Find(nil).Snapshot().One(&list[0]))
		err := c.Find(bson.M{"$nosuch": 1}).One(&list[0])
		equal(err.(*mgo.QueryError).Code, 2)
	}},
	{"cursors: batches, prefetched; one that is not read to its end", func(db *mgo.Database) {
		c := db.C("orders")
		fill(c, 1000)
		db.Session.SetBatch(50)
		db.Session.SetPrefetch(0.5)
		iter := c.Find(nil).Sort("total").Iter()
		var one order
		for number := 0; iter.Next(&one); number++ {
			equal(one.Total, float64(number))
		}
		must(iter.Close())
		equal(one.Total, 999.0)
		iter = c.Find(nil).Batch(10).Prefetch(0).Iter()
		isTrue(iter.Next(&one), "there is a first one")
		must(iter.Close())
		var status struct {
			Metrics struct {
				Cursor struct{ Open struct{ Total int } }
			}
		}
		// The cursor is killed without a reply.
		for {
			must(db.Session.Run("serverStatus", &status))
			if status.Metrics.Cursor.Open.Total == 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}},
	{"find and modify", func(db *mgo.Database) {
		c := db.C("counters")
		var doc bson.M
		change := mgo.Change{Update: bson.M{"$inc": bson.M{"n": 1}}, Upsert: true, ReturnNew: true}
		info := get(c.Find(bson.M{"_id": "orders"}).Apply(change, &doc))
		equal([]any{info.UpsertedId, doc["n"]}, []any{"orders", 1})
		change.Upsert = false
		info = get(c.Find(bson.M{"_id": "orders"}).Sort("-n").Select(bson.M{"n": 1}).Apply(change, &doc))
		equal([]any{info.Updated, doc["n"]}, []any{1, 2})
		_, err := c.Find(bson.M{"_id": "none"}).Apply(change, &doc)
		equal(err, mgo.ErrNotFound)
		info = get(c.Find(bson.M{"_id": "orders"}).Apply(mgo.Change{Remove: true}, &doc))
		equal([]any{info.Removed, get(c.Count())}, []any{1, 0})
	}},
	{"every kind of safety", func(db *mgo.Database) {
		session := db.Session
		for number, safe := range []*mgo.Safe{
			{},
			{W: 1},
			{W: 1, J: true},
			{W: 1, WTimeout: 100},
			{W: 1, FSync: true},
			{WMode: "majority"},
		} {
			session.SetSafe(safe)
			c := db.C("safe")
			must(c.Insert(bson.M{"_id": number}))
			must(c.UpdateId(number, bson.M{"$set": bson.M{"a": 1}}))
			isTrue(mgo.IsDup(c.Insert(bson.M{"_id": number})), "a duplicate")
			_ = get(c.Find(bson.M{"_id": number}).Apply(mgo.Change{Update: bson.M{"$inc": bson.M{"a": 1}}}, nil))
			must(c.RemoveId(number))
		}
		session.SetSafe(&mgo.Safe{W: 4})
		isTrue(db.C("safe").Insert(bson.M{}) != nil, "there is no fourth member")
		// Without a reply: the opcodes from before 2014.
		session.SetSafe(nil)
		c := db.C("unsafe")
		must(c.Insert(bson.M{"_id": 1}, bson.M{"_id": 2}, bson.M{"_id": 3}))
		must(c.Insert(bson.M{"_id": 1}))
		must(c.Update(bson.M{"_id": 2}, bson.M{"$set": bson.M{"a": 1}}))
		_ = get(c.Upsert(bson.M{"_id": 4}, bson.M{"$set": bson.M{"a": 1}}))
		must(c.RemoveId(3))
		session.SetSafe(&mgo.Safe{})
		var ids []int
		must(c.Find(nil).Distinct("_id", &ids))
		equal(ids, []int{1, 2, 4})
	}},
}
