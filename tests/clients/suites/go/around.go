package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
)

// Indexes, the catalog, files, sessions, concurrency.
var around = []test{
	{"indexes: create, list, use, drop", func(ctx context.Context, db *mongo.Database) {
		c := db.Collection("items")
		fill(ctx, c, 100)
		names := get(c.Indexes().CreateMany(ctx, []mongo.IndexModel{
			{Keys: bson.D{{Key: "sku", Value: 1}}, Options: options.Index().SetUnique(true)},
			{Keys: bson.D{{Key: "stock.warehouse", Value: 1}, {Key: "stock.n", Value: -1}}, Options: options.Index().SetName("where")},
			{Keys: bson.D{{Key: "tags", Value: 1}}, Options: options.Index().SetSparse(true)},
			{Keys: bson.D{{Key: "made", Value: 1}}, Options: options.Index().SetPartialFilterExpression(bson.M{"sku": bson.M{"$gt": 50}})},
		}))
		equal(names, []string{"sku_1", "where", "tags_1", "made_1"})
		specs := get(c.Indexes().ListSpecifications(ctx))
		equal(len(specs), 5)
		isTrue(*specs[1].Unique && *specs[3].Sparse, "the options come back")
		var plan struct {
			QueryPlanner struct {
				WinningPlan bson.M `bson:"winningPlan"`
			} `bson:"queryPlanner"`
		}
		must(db.RunCommand(ctx, bson.D{{Key: "explain", Value: bson.D{{Key: "find", Value: "items"}, {Key: "filter", Value: bson.M{"tags": "t1"}}}}}).Decode(&plan))
		equal(plan.QueryPlanner.WinningPlan["stage"], "FETCH")
		found := 0
		cursor := get(c.Find(ctx, bson.M{"stock.warehouse": "A"}, options.Find().SetHint("where")))
		for cursor.Next(ctx) {
			found++
		}
		equal(found, 100)
		must(c.Indexes().DropOne(ctx, "where"))
		must(c.Indexes().DropWithKey(ctx, bson.D{{Key: "tags", Value: 1}}))
		must(c.Indexes().DropAll(ctx))
		equal(len(get(c.Indexes().ListSpecifications(ctx))), 1)
		get(c.InsertOne(ctx, bson.M{"sku": 5}))
		_, err := c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.M{"sku": 1}, Options: options.Index().SetUnique(true)})
		isTrue(mongo.IsDuplicateKeyError(err), "a duplicate stops the index")
		err = c.Indexes().DropOne(ctx, "nosuch")
		equal(as[mongo.CommandError](err).Name, "IndexNotFound")
	}},
	{"collections and databases", func(ctx context.Context, db *mongo.Database) {
		must(db.CreateCollection(ctx, "made"))
		err := db.CreateCollection(ctx, "made", options.CreateCollection().SetCapped(true).SetSizeInBytes(4096))
		isTrue(err != nil, "it is there already with other options")
		get(db.Collection("filled").InsertOne(ctx, bson.M{}))
		names := get(db.ListCollectionNames(ctx, bson.M{}))
		slices.Sort(names)
		equal(names, []string{"filled", "made"})
		specs := get(db.ListCollectionSpecifications(ctx, bson.M{"name": "made"}))
		equal([]any{len(specs), specs[0].Type, specs[0].UUID.Subtype}, []any{1, "collection", byte(4)})
		isTrue(slices.Contains(get(db.Client().ListDatabaseNames(ctx, bson.M{"name": "go"})), "go"), "the database is listed")
		must(db.Collection("filled").Drop(ctx))
		must(db.Collection("never there").Drop(ctx))
	}},
	{"GridFS: upload, download, seek, find, rename, delete", func(ctx context.Context, db *mongo.Database) {
		bucket := db.GridFSBucket(options.GridFSBucket().SetName("files").SetChunkSizeBytes(1024))
		data := make([]byte, 100_000)
		for i := range data {
			data[i] = byte(i * i >> 3)
		}
		id := get(bucket.UploadFromStream(ctx, "data.bin", bytes.NewReader(data), options.GridFSUpload().SetMetadata(bson.M{"kind": "test"})))
		var back bytes.Buffer
		equal(get(bucket.DownloadToStream(ctx, id, &back)), int64(len(data)))
		isTrue(bytes.Equal(back.Bytes(), data), "the bytes are the same")
		stream := get(bucket.OpenDownloadStreamByName(ctx, "data.bin"))
		get(stream.Skip(5000))
		part := make([]byte, 3000)
		get(io.ReadFull(stream, part))
		isTrue(bytes.Equal(part, data[5000:8000]), "a range")
		must(stream.Close())
		upload := get(bucket.OpenUploadStream(ctx, "data.bin"))
		get(upload.Write([]byte("second revision")))
		must(upload.Close())
		back.Reset()
		get(bucket.DownloadToStreamByName(ctx, "data.bin", &back))
		equal(back.String(), "second revision")
		var files []mongo.GridFSFile
		must(get(bucket.Find(ctx, bson.M{"length": bson.M{"$gt": 50}})).All(ctx, &files))
		equal([]any{len(files), files[0].Name, files[0].Length}, []any{1, "data.bin", int64(100_000)})
		must(bucket.Rename(ctx, id, "other.bin"))
		must(bucket.Delete(ctx, id))
		isTrue(errors.Is(bucket.Delete(ctx, id), mongo.ErrFileNotFound), "it is gone")
		equal(get(db.Collection("files.chunks").CountDocuments(ctx, bson.M{})), int64(1))
		aborted := get(bucket.OpenUploadStream(ctx, "aborted"))
		get(aborted.Write(data))
		must(aborted.Abort())
		equal(get(db.Collection("files.chunks").CountDocuments(ctx, bson.M{})), int64(1))
		must(bucket.Drop(ctx))
	}},
	{"sessions, causal reads, read concerns and preferences", func(ctx context.Context, db *mongo.Database) {
		session := get(db.Client().StartSession(options.Session().SetCausalConsistency(true)))
		defer session.EndSession(ctx)
		must(mongo.WithSession(ctx, session, func(ctx context.Context) error {
			c := db.Collection("s", options.Collection().SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.PrimaryPreferred()))
			for n := range 20 {
				get(c.InsertOne(ctx, bson.M{"_id": n}))
				equal(get(c.CountDocuments(ctx, bson.M{})), int64(n+1))
			}
			return nil
		}))
		_, err := session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
			return db.Collection("s").InsertOne(ctx, bson.M{"_id": "in a transaction"})
		})
		must(err)
		equal(get(db.Collection("s").CountDocuments(ctx, bson.M{})), int64(21))
	}},
	{"contexts end what takes too long", func(ctx context.Context, db *mongo.Database) {
		fill(ctx, db.Collection("items"), 500)
		gone, cancel := context.WithCancel(ctx)
		cancel()
		_, err := db.Collection("items").CountDocuments(gone, bson.M{})
		isTrue(errors.Is(err, context.Canceled), "cancelled")
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		lookup := func() bson.M {
			match := bson.M{"$match": bson.M{"$expr": bson.M{"$gte": bson.A{bson.M{"$add": bson.A{"$sku", "$$sku"}}, 0}}}}
			return bson.M{"$lookup": bson.M{"from": "items", "let": bson.M{"sku": "$sku"}, "pipeline": bson.A{match}, "as": "all"}}
		}
		_, err = db.Collection("items").Aggregate(short, bson.A{lookup(), bson.M{"$unwind": "$all"}, lookup(), bson.M{"$count": "n"}})
		isTrue(mongo.IsTimeout(err), fmt.Sprint("a timeout, not ", err))
		equal(get(db.Collection("items").CountDocuments(ctx, bson.M{})), int64(500))
	}},
	{"many goroutines count together", func(ctx context.Context, db *mongo.Database) {
		c := db.Collection("counter")
		get(c.InsertOne(ctx, bson.M{"_id": 1, "n": 0}))
		var group sync.WaitGroup
		failures := make(chan error, 20)
		for range 20 {
			group.Add(1)
			go func() {
				defer group.Done()
				for range 25 {
					if _, err := c.UpdateByID(ctx, 1, bson.M{"$inc": bson.M{"n": 1}}); err != nil {
						failures <- err
						return
					}
				}
			}()
		}
		group.Wait()
		close(failures)
		must(<-failures)
		var counted struct{ N int }
		must(c.FindOne(ctx, bson.M{}).Decode(&counted))
		equal(counted.N, 500)
	}},
}
