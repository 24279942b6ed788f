package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/xoptions"
)

// The Database Tools use this driver. These tests send the same commands.
var tools = []test{
	{"mongodump and mongorestore: everything comes back as it was", func(ctx context.Context, db *mongo.Database) {
		restored := db.Client().Database("go_restored")
		must(restored.Drop(ctx))
		fillForDump(ctx, db)
		collections := dump(ctx, db)
		names := []string{}
		for _, one := range collections {
			names = append(names, one.name)
			restore(ctx, restored, one)
		}
		slices.Sort(names)
		equal(names, []string{"capped", "series", "types", "validated", "view"})
		again := dump(ctx, restored)
		equal(len(again), len(collections))
		for at, one := range collections {
			other := again[at]
			equal(other.name, one.name)
			equal(other.kind, one.kind)
			equal(other.options.String(), one.options.String())
			equal(other.indexes, one.indexes)
			equal(len(other.documents), len(one.documents))
			for number, document := range one.documents {
				isTrue(bytes.Equal(document, other.documents[number]), fmt.Sprintf("%s: %v became %v", one.name, document, other.documents[number]))
			}
		}
	}},
	{"mongoimport: insert, upsert, merge and delete", func(ctx context.Context, db *mongo.Database) {
		c := db.Collection("imported")
		empty := bson.Timestamp{}
		many := make([]mongo.WriteModel, 0, 1000)
		for n := range 1000 {
			many = append(many, mongo.NewInsertOneModel().SetDocument(bson.D{{Key: "_id", Value: n}, {Key: "t", Value: empty}}))
		}
		equal(get(c.BulkWrite(ctx, many, unfilled(false))).InsertedCount, int64(1000))
		done := get(c.BulkWrite(ctx, []mongo.WriteModel{
			mongo.NewReplaceOneModel().SetFilter(bson.M{"_id": 1}).SetReplacement(bson.M{"t": empty, "r": 1}).SetUpsert(true),
			mongo.NewUpdateOneModel().SetFilter(bson.M{"_id": 2000}).SetUpdate(bson.M{"$set": bson.M{"t": empty}}).SetUpsert(true),
			mongo.NewDeleteOneModel().SetFilter(bson.M{"_id": 5}),
		}, unfilled(true)))
		equal([]int64{done.ModifiedCount, done.UpsertedCount, done.DeletedCount}, []int64{1, 1, 1})
		equal(get(c.CountDocuments(ctx, bson.M{"t": empty})), int64(1000))
		// Without the field the server fills the time in, at the first level.
		get(c.InsertOne(ctx, bson.M{"_id": 3000, "t": empty, "d": bson.M{"t": empty}}))
		equal(get(c.CountDocuments(ctx, bson.M{"t": bson.M{"$ne": empty}, "d.t": empty})), int64(1))
	}},
	{"the tools ask whether a Timestamp(0, 0) can be kept", func(ctx context.Context, db *mongo.Database) {
		reply := db.RunCommand(ctx, bson.D{
			{Key: "update", Value: "_mongorestore_dummy.dummy"}, {Key: "ordered", Value: true},
			{Key: "bypassEmptyTsReplacement", Value: true},
			{Key: "updates", Value: bson.A{bson.M{"q": bson.M{"____dummy": 1}, "u": bson.M{"$rename": bson.M{}}}}},
		})
		must(reply.Err())
		equal(len(get(db.ListCollectionNames(ctx, bson.M{}))), 0)
	}},
}

// unfilled makes the server keep a Timestamp(0, 0), as the tools do.
func unfilled(ordered bool) *options.BulkWriteOptionsBuilder {
	bulk := options.BulkWrite().SetOrdered(ordered).SetBypassDocumentValidation(true)
	must(xoptions.SetInternalBulkWriteOptions(bulk, "addCommandFields", bson.D{{Key: "bypassEmptyTsReplacement", Value: true}}))
	return bulk
}

type dumped struct {
	name, kind string
	options    bson.Raw
	indexes    []string
	specs      bson.A
	documents  []bson.Raw
}

func fillForDump(ctx context.Context, db *mongo.Database) {
	empty := bson.Timestamp{}
	types := db.Collection("types")
	id := get(bson.ObjectIDFromHex("0123456789abcdef01234567"))
	values := bson.A{
		1.5, math.NaN(), math.Inf(1), "text", bson.M{"a": bson.M{"t": empty}}, bson.A{1, bson.A{}, empty}, bson.Binary{Subtype: 4, Data: make([]byte, 16)},
		bson.Binary{Subtype: 2, Data: []byte("old")}, bson.Undefined{}, id, true, bson.DateTime(-1), nil, bson.Regex{Pattern: "a.b", Options: "im"},
		bson.DBPointer{DB: "db.c", Pointer: id}, bson.JavaScript("x"), bson.Symbol("s"), bson.CodeWithScope{Code: "x", Scope: bson.D{}}, int32(-1),
		empty, bson.Timestamp{T: 1, I: 2}, int64(1) << 60, get(bson.ParseDecimal128("1.10")), bson.MinKey{}, bson.MaxKey{},
	}
	models := []mongo.WriteModel{mongo.NewInsertOneModel().SetDocument(bson.D{{Key: "_id", Value: empty}, {Key: "v", Value: empty}})}
	for n, value := range values {
		models = append(models, mongo.NewInsertOneModel().SetDocument(bson.D{{Key: "_id", Value: n}, {Key: "v", Value: value}}))
	}
	get(types.BulkWrite(ctx, models, unfilled(false)))
	must(db.RunCommand(ctx, bson.D{{Key: "createIndexes", Value: "types"}, {Key: "indexes", Value: bson.A{
		bson.D{{Key: "key", Value: bson.D{{Key: "v", Value: 1}, {Key: "w", Value: -1}}}, {Key: "name", Value: "v_1_w_-1"}},
		bson.D{{Key: "key", Value: bson.D{{Key: "u", Value: 1}}}, {Key: "name", Value: "u"}, {Key: "unique", Value: true}, {Key: "sparse", Value: true}, {Key: "collation", Value: bson.D{{Key: "locale", Value: "de"}}}},
		bson.D{{Key: "key", Value: bson.D{{Key: "s", Value: "text"}}}, {Key: "name", Value: "s_text"}, {Key: "default_language", Value: "german"}},
		bson.D{{Key: "key", Value: bson.D{{Key: "p", Value: "2dsphere"}}}, {Key: "name", Value: "p"}},
		bson.D{{Key: "key", Value: bson.D{{Key: "h", Value: "hashed"}}}, {Key: "name", Value: "h"}},
		bson.D{{Key: "key", Value: bson.D{{Key: "x.$**", Value: 1}}}, {Key: "name", Value: "all"}},
		bson.D{{Key: "key", Value: bson.D{{Key: "at", Value: 1}}}, {Key: "name", Value: "ttl"}, {Key: "expireAfterSeconds", Value: 3600}, {Key: "partialFilterExpression", Value: bson.D{{Key: "v", Value: bson.D{{Key: "$gt", Value: 1}}}}}},
	}}}).Err())
	must(db.CreateCollection(ctx, "capped", options.CreateCollection().SetCapped(true).SetSizeInBytes(8192).SetMaxDocuments(50)))
	for n := range 60 {
		get(db.Collection("capped").InsertOne(ctx, bson.M{"_id": 100 - n}))
	}
	validator := bson.M{"$jsonSchema": bson.M{"required": bson.A{"a"}}}
	must(db.CreateCollection(ctx, "validated", options.CreateCollection().SetCollation(&options.Collation{Locale: "en"})))
	get(db.Collection("validated").InsertOne(ctx, bson.M{"_id": 1}))
	// What is there already need not be valid, and has to be restored all the same.
	must(db.RunCommand(ctx, bson.D{{Key: "collMod", Value: "validated"}, {Key: "validator", Value: validator}}).Err())
	must(db.CreateView(ctx, "view", "types", mongo.Pipeline{{{Key: "$match", Value: bson.M{"v": 1}}}}))
	series := options.TimeSeries().SetTimeField("at").SetMetaField("m")
	must(db.CreateCollection(ctx, "series", options.CreateCollection().SetTimeSeriesOptions(series)))
	for n := range 20 {
		at := bson.NewDateTimeFromTime(time.Unix(int64(n)*60, 0))
		get(db.Collection("series").InsertOne(ctx, bson.D{{Key: "_id", Value: n}, {Key: "at", Value: at}, {Key: "m", Value: n % 3}, {Key: "t", Value: empty}}))
	}
}

// dump reads a database as mongodump does: time series by the name of their buckets.
func dump(ctx context.Context, db *mongo.Database) []dumped {
	var all []dumped
	list := get(db.ListCollections(ctx, bson.M{}))
	for list.Next(ctx) {
		one := dumped{
			name:    list.Current.Lookup("name").StringValue(),
			kind:    list.Current.Lookup("type").StringValue(),
			options: slices.Clone(list.Current.Lookup("options").Document()),
		}
		if strings.HasPrefix(one.name, "system.") {
			continue
		}
		if one.kind != "view" {
			indexes, err := db.RunCommandCursor(ctx, bson.D{{Key: "listIndexes", Value: one.name}, {Key: "cursor", Value: bson.M{}}})
			if isGone(err) {
				continue
			}
			must(err)
			for indexes.Next(ctx) {
				one.indexes = append(one.indexes, indexes.Current.String())
				var spec bson.D
				must(indexes.Decode(&spec))
				one.specs = append(one.specs, spec)
			}
			must(indexes.Err())
			name := one.name
			if one.kind == "timeseries" {
				name = "system.buckets." + name
			}
			cursor := get(db.Collection(name).Find(ctx, bson.M{}, options.Find().SetNoCursorTimeout(true).SetBatchSize(7)))
			for cursor.Next(ctx) {
				one.documents = append(one.documents, slices.Clone(cursor.Current))
			}
			must(cursor.Err())
		}
		all = append(all, one)
	}
	must(list.Err())
	slices.SortFunc(all, func(a, b dumped) int { return strings.Compare(a.name, b.name) })
	return all
}

// isGone tells whether a collection was dropped since it was listed.
func isGone(err error) bool {
	var command mongo.CommandError
	return errors.As(err, &command) && command.Name == "NamespaceNotFound"
}

// restore writes a collection as mongorestore does.
func restore(ctx context.Context, db *mongo.Database, one dumped) {
	var options bson.D
	must(bson.Unmarshal(one.options, &options))
	must(db.RunCommand(ctx, append(bson.D{{Key: "create", Value: one.name}}, options...)).Err())
	if one.kind == "view" {
		return
	}
	name := one.name
	if one.kind == "timeseries" {
		name = "system.buckets." + name
	}
	models := make([]mongo.WriteModel, 0, len(one.documents))
	for _, document := range one.documents {
		models = append(models, mongo.NewInsertOneModel().SetDocument(document))
	}
	ordered := one.name == "capped"
	equal(get(db.Collection(name).BulkWrite(ctx, models, unfilled(ordered))).InsertedCount, int64(len(models)))
	var specs bson.A
	for _, spec := range one.specs {
		var kept bson.D
		id := false
		for _, field := range spec.(bson.D) {
			id = id || field.Key == "name" && field.Value == "_id_"
			if field.Key != "v" {
				kept = append(kept, field)
			}
		}
		if !id {
			specs = append(specs, append(kept, bson.E{Key: "ns", Value: db.Name() + "." + one.name}))
		}
	}
	if len(specs) > 0 {
		must(db.RunCommand(ctx, bson.D{
			{Key: "createIndexes", Value: one.name}, {Key: "indexes", Value: specs}, {Key: "ignoreUnknownIndexOptions", Value: true},
		}).Err())
	}
}
