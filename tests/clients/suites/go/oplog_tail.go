package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Programs that bring changes to a search engine (Monstache and others) tail the oplog so: by time, in natural order, from
// where they stopped, and read the documents of updates that have no whole document.
var tailing = []test{
	{"a tail brings every change to an index, over stops and lost cursors", func(ctx context.Context, db *mongo.Database) {
		index := newIndex(ctx, db)
		c := db.Collection("c")
		for round := range 6 {
			for n := range 50 {
				get(c.InsertOne(ctx, bson.M{"_id": fmt.Sprint(round, " ", n), "n": n, "tags": bson.A{}}))
			}
			get(c.UpdateMany(ctx, bson.M{"n": bson.M{"$lt": 10}}, bson.M{"$inc": bson.M{"n": 100}, "$push": bson.M{"tags": round}}))
			get(c.ReplaceOne(ctx, bson.M{"n": 20}, bson.M{"replaced": round}))
			get(c.DeleteMany(ctx, bson.M{"n": bson.M{"$gte": 30, "$lt": 35}}))
			switch round % 3 {
			case 0:
				index.catchUp(ctx)
			case 1:
				// The program ends and starts again.
				index.catchUp(ctx)
				index.open(ctx)
			default:
				index.catchUp(ctx)
				kill := bson.D{{Key: "killCursors", Value: "oplog.rs"}, {Key: "cursors", Value: bson.A{index.cursor.ID()}}}
				must(db.Client().Database("local").RunCommand(ctx, kill).Err())
			}
		}
		index.compare(ctx)
	}},
	{"transactions are taken apart, drops empty the index", func(ctx context.Context, db *mongo.Database) {
		index := newIndex(ctx, db)
		session := get(db.Client().StartSession())
		defer session.EndSession(ctx)
		_, err := session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
			get(db.Collection("a").InsertMany(ctx, []any{bson.M{"_id": 1, "n": 1}, bson.M{"_id": 2, "n": 2}}))
			get(db.Collection("b").InsertOne(ctx, bson.M{"_id": 1}))
			get(db.Collection("a").UpdateByID(ctx, 1, bson.M{"$set": bson.M{"n": 5}}))
			get(db.Collection("a").DeleteOne(ctx, bson.M{"_id": 2}))
			return nil, nil
		})
		must(err)
		index.catchUp(ctx)
		index.compare(ctx)
		equal(index.chains, 1)
		must(db.Collection("a").Drop(ctx))
		index.catchUp(ctx)
		equal(len(index.documents[db.Name()+".a"]), 0)
		equal(len(index.documents[db.Name()+".b"]), 1)
		must(db.Drop(ctx))
		index.catchUp(ctx)
		equal(len(index.documents[db.Name()+".b"]), 0)
	}},
	{"a transaction of more than 16 MB is a chain of entries", func(ctx context.Context, db *mongo.Database) {
		must(db.CreateCollection(ctx, "large"))
		index := newIndex(ctx, db)
		text := strings.Repeat("x", 1_000_000)
		session := get(db.Client().StartSession())
		defer session.EndSession(ctx)
		_, err := session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
			for n := range 36 {
				get(db.Collection("large").InsertOne(ctx, bson.M{"_id": n, "text": text}))
			}
			return nil, nil
		})
		must(err)
		index.catchUp(ctx)
		index.compare(ctx)
		isTrue(index.chains >= 3, fmt.Sprintf("%d entries for 36 MB", index.chains))
	}},
	{"queries by time start at once and end where they must", func(ctx context.Context, db *mongo.Database) {
		c := db.Collection("timed")
		var all []any
		for n := range 3000 {
			all = append(all, bson.M{"_id": n})
		}
		get(c.InsertMany(ctx, all))
		oplog := oplogOf(db)
		var entries []entry
		must(get(oplog.Find(ctx, bson.M{"ns": db.Name() + ".timed", "op": "i"})).All(ctx, &entries))
		equal(len(entries), 3000)
		for at := 0; at < 3000; at += 500 {
			moment := entries[at].Time
			var found []entry
			between := bson.M{"$and": bson.A{bson.M{"ts": bson.M{"$gte": moment}}, bson.M{"ts": bson.M{"$lte": entries[at+499].Time}}}}
			must(get(oplog.Find(ctx, between)).All(ctx, &found))
			equal(len(found), 500)
			equal(found[0].Time, moment)
		}
		// Reading the last entries reads few: the plan has bounds of time.
		explain := bson.D{{Key: "explain", Value: bson.D{
			{Key: "find", Value: "oplog.rs"}, {Key: "filter", Value: bson.M{"ts": bson.M{"$gt": entries[2990].Time}}},
		}}, {Key: "verbosity", Value: "executionStats"}}
		var plan struct {
			Stats struct {
				Docs int `bson:"totalDocsExamined"`
			} `bson:"executionStats"`
		}
		must(db.Client().Database("local").RunCommand(ctx, explain).Decode(&plan))
		isTrue(plan.Stats.Docs < 100, fmt.Sprintf("%d entries were read for the last few", plan.Stats.Docs))
	}},
}

type entry struct {
	Time      bson.Timestamp `bson:"ts"`
	Operation string         `bson:"op"`
	Namespace string         `bson:"ns"`
	Object    bson.D         `bson:"o"`
	Update    bson.M         `bson:"o2"`
}

func oplogOf(db *mongo.Database) *mongo.Collection {
	return db.Client().Database("local").Collection("oplog.rs")
}

// index keeps documents as a search engine would, by namespace and _id.
type index struct {
	db        *mongo.Database
	after     bson.Timestamp
	cursor    *mongo.Cursor
	documents map[string]map[any]bson.M
	chains    int
}

func newIndex(ctx context.Context, db *mongo.Database) *index {
	last := entry{}
	codes := bson.M{"op": bson.M{"$in": bson.A{"c", "i", "u", "d"}}}
	must(oplogOf(db).FindOne(ctx, codes, options.FindOne().SetSort(bson.M{"$natural": -1})).Decode(&last))
	first := entry{}
	must(oplogOf(db).FindOne(ctx, bson.M{}, options.FindOne().SetSort(bson.M{"$natural": 1})).Decode(&first))
	isTrue(first.Time.Compare(last.Time) < 0, "the first entry is older than the last")
	x := &index{db: db, after: last.Time, documents: map[string]map[any]bson.M{}}
	x.open(ctx)
	return x
}

func (x *index) open(ctx context.Context) {
	if x.cursor != nil {
		_ = x.cursor.Close(ctx)
	}
	query := bson.M{
		"ts":          bson.M{"$gt": x.after},
		"op":          bson.M{"$in": bson.A{"c", "i", "u", "d"}},
		"fromMigrate": bson.M{"$exists": false},
	}
	find := options.Find().SetSort(bson.M{"$natural": 1}).SetCursorType(options.TailableAwait).SetMaxAwaitTime(200 * time.Millisecond)
	x.cursor = get(oplogOf(x.db).Find(ctx, query, find))
}

// catchUp reads up to a mark that it writes now.
func (x *index) catchUp(ctx context.Context) {
	mark := bson.NewObjectID()
	get(x.db.Client().Database("go_marks").Collection("marks").InsertOne(ctx, bson.M{"_id": mark}))
	for {
		for !x.cursor.TryNext(ctx) {
			must(ctx.Err())
			if x.cursor.Err() != nil || x.cursor.ID() == 0 {
				x.open(ctx)
			}
		}
		var one entry
		must(x.cursor.Decode(&one))
		isTrue(one.Time.Compare(x.after) > 0, "an entry came again, or late")
		x.after = one.Time
		if one.Namespace == "go_marks.marks" && one.Object[0].Value == mark {
			return
		}
		x.take(ctx, one)
	}
}

func (x *index) take(ctx context.Context, one entry) {
	database, collection, _ := strings.Cut(one.Namespace, ".")
	if one.Operation == "c" && one.Object[0].Key == "applyOps" {
		x.chains++
		for _, inner := range one.Object[0].Value.(bson.A) {
			var nested entry
			must(bson.Unmarshal(get(bson.Marshal(inner)), &nested))
			x.take(ctx, nested)
		}
		return
	}
	if database != x.db.Name() {
		return
	}
	documents := x.documents[one.Namespace]
	if documents == nil {
		documents = map[any]bson.M{}
		x.documents[one.Namespace] = documents
	}
	switch one.Operation {
	case "i":
		document := mapOf(one.Object)
		documents[document["_id"]] = document
	case "d":
		delete(documents, mapOf(one.Object)["_id"])
	case "u":
		// The document as it is now.
		var document bson.M
		id := one.Update["_id"]
		err := x.db.Collection(collection).FindOne(ctx, bson.M{"_id": id}).Decode(&document)
		if err == mongo.ErrNoDocuments {
			delete(documents, id)
			return
		}
		must(err)
		documents[id] = document
	case "c":
		switch command := one.Object[0]; command.Key {
		case "drop":
			delete(x.documents, database+"."+command.Value.(string))
		case "dropDatabase":
			clear(x.documents)
		}
	}
}

func mapOf(document bson.D) bson.M {
	var all bson.M
	must(bson.Unmarshal(get(bson.Marshal(document)), &all))
	return all
}

func (x *index) compare(ctx context.Context) {
	for _, name := range get(x.db.ListCollectionNames(ctx, bson.M{})) {
		var there []bson.M
		must(get(x.db.Collection(name).Find(ctx, bson.M{})).All(ctx, &there))
		found := x.documents[x.db.Name()+"."+name]
		equal(len(found), len(there))
		for _, document := range there {
			equal(found[document["_id"]], document)
		}
	}
}
