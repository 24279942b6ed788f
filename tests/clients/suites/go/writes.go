package main

import (
	"context"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

var writes = []test{
	{"updates report what they did", func(ctx context.Context, db *mongo.Database) {
		c := db.Collection("items")
		fill(ctx, c, 20)
		one := get(c.UpdateOne(ctx, bson.M{"sku": 3}, bson.M{"$inc": bson.M{"stock.0.n": 5}, "$push": bson.M{"tags": "new"}}))
		equal([]int64{one.MatchedCount, one.ModifiedCount, one.UpsertedCount}, []int64{1, 1, 0})
		same := get(c.UpdateMany(ctx, bson.M{"sku": bson.M{"$lt": 5}}, bson.M{"$addToSet": bson.M{"tags": "all"}}))
		equal([]int64{same.MatchedCount, same.ModifiedCount}, []int64{5, 0})
		upsert := get(c.UpdateOne(ctx, bson.M{"sku": 500}, bson.M{"$setOnInsert": bson.M{"name": "made"}}, options.UpdateOne().SetUpsert(true)))
		equal(upsert.UpsertedCount, int64(1))
		var made item
		must(c.FindOne(ctx, bson.M{"_id": upsert.UpsertedID}).Decode(&made))
		equal([]any{made.Name, made.Sku}, []any{"made", 500})
		by := get(c.UpdateByID(ctx, upsert.UpsertedID, bson.M{"$set": bson.M{"name": "again"}}))
		equal(by.ModifiedCount, int64(1))
		_, err := c.UpdateOne(ctx, bson.M{}, bson.M{"name": "no operator"})
		isTrue(err != nil && strings.Contains(err.Error(), "must"), "the driver refuses")
		_, err = c.UpdateOne(ctx, bson.M{}, bson.M{"$nosuch": bson.M{"a": 1}})
		equal(as[mongo.WriteException](err).WriteErrors[0].Code, 9)
	}},
	{"array filters, positional and pipeline updates", func(ctx context.Context, db *mongo.Database) {
		c := db.Collection("items")
		fill(ctx, c, 10)
		filters := options.UpdateMany().SetArrayFilters([]any{bson.M{"s.n": bson.M{"$gte": 10}}})
		equal(get(c.UpdateMany(ctx, bson.M{}, bson.M{"$set": bson.M{"stock.$[s].warehouse": "big"}}, filters)).ModifiedCount, int64(5))
		get(c.UpdateOne(ctx, bson.M{"sku": 9, "stock.warehouse": "big"}, bson.M{"$set": bson.M{"stock.$.n": 0}}))
		get(c.UpdateMany(ctx, bson.M{}, mongo.Pipeline{{{Key: "$set", Value: bson.M{"total": bson.M{"$sum": "$stock.n"}}}}}))
		var last struct {
			Total int
			Stock []stock
		}
		must(c.FindOne(ctx, bson.M{"sku": 9}).Decode(&last))
		equal(last.Total, 9)
		equal(last.Stock, []stock{{"A", 9}, {"big", 0}})
	}},
	{"replace, delete", func(ctx context.Context, db *mongo.Database) {
		c := db.Collection("items")
		fill(ctx, c, 20)
		replaced := get(c.ReplaceOne(ctx, bson.M{"sku": 1}, item{Name: "other", Sku: 1, Price: decimal("0")}))
		equal(replaced.ModifiedCount, int64(1))
		equal(get(c.DeleteOne(ctx, bson.M{"name": "other"})).DeletedCount, int64(1))
		equal(get(c.DeleteMany(ctx, bson.M{"sku": bson.M{"$gte": 15}})).DeletedCount, int64(5))
		equal(get(c.DeleteMany(ctx, bson.M{"sku": 900})).DeletedCount, int64(0))
		equal(get(c.CountDocuments(ctx, bson.M{})), int64(14))
	}},
	{"find one and update, replace, delete", func(ctx context.Context, db *mongo.Database) {
		c := db.Collection("items")
		fill(ctx, c, 10)
		var one item
		update := options.FindOneAndUpdate().SetSort(bson.M{"sku": -1}).SetReturnDocument(options.After)
		must(c.FindOneAndUpdate(ctx, bson.M{}, bson.M{"$inc": bson.M{"sku": 100}}, update).Decode(&one))
		equal(one.Sku, 109)
		must(c.FindOneAndReplace(ctx, bson.M{"sku": 109}, bson.M{"sku": 9, "name": "re"}).Decode(&one))
		equal(one.Sku, 109)
		must(c.FindOneAndDelete(ctx, bson.M{"sku": 9}, options.FindOneAndDelete().SetProjection(bson.M{"name": 1})).Decode(&one))
		equal(one.Name, "re")
		upsert := options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)
		must(c.FindOneAndUpdate(ctx, bson.M{"sku": 77}, bson.M{"$set": bson.M{"name": "up"}}, upsert).Decode(&one))
		equal(one.Name, "up")
		equal(get(c.CountDocuments(ctx, bson.M{})), int64(10))
	}},
	{"bulk writes of all models", func(ctx context.Context, db *mongo.Database) {
		c := db.Collection("items")
		models := []mongo.WriteModel{
			mongo.NewInsertOneModel().SetDocument(bson.M{"_id": 1, "n": 1}),
			mongo.NewInsertOneModel().SetDocument(bson.M{"_id": 2, "n": 2}),
			mongo.NewUpdateOneModel().SetFilter(bson.M{"_id": 1}).SetUpdate(bson.M{"$inc": bson.M{"n": 10}}),
			mongo.NewUpdateManyModel().SetFilter(bson.M{}).SetUpdate(bson.M{"$set": bson.M{"m": true}}),
			mongo.NewReplaceOneModel().SetFilter(bson.M{"_id": 3}).SetReplacement(bson.M{"r": 1}).SetUpsert(true),
			mongo.NewDeleteOneModel().SetFilter(bson.M{"_id": 2}),
			mongo.NewDeleteManyModel().SetFilter(bson.M{"n": bson.M{"$gt": 100}}),
		}
		result := get(c.BulkWrite(ctx, models))
		equal([]int64{result.InsertedCount, result.MatchedCount, result.ModifiedCount, result.UpsertedCount, result.DeletedCount}, []int64{2, 3, 3, 1, 1})
		equal(result.UpsertedIDs, map[int64]any{4: int32(3)})
	}},
	{"bulk writes name what failed, ordered and not", func(ctx context.Context, db *mongo.Database) {
		c := db.Collection("items")
		insert := func(id int) mongo.WriteModel { return mongo.NewInsertOneModel().SetDocument(bson.M{"_id": id}) }
		models := []mongo.WriteModel{insert(1), insert(1), insert(2), insert(2), insert(3)}
		_, err := c.BulkWrite(ctx, models)
		failed := as[mongo.BulkWriteException](err).WriteErrors
		equal([]int{len(failed), failed[0].Index, failed[0].Code}, []int{1, 1, 11000})
		must(c.Drop(ctx))
		result, err := c.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
		failed = as[mongo.BulkWriteException](err).WriteErrors
		equal([]int{len(failed), failed[0].Index, failed[1].Index}, []int{2, 1, 3})
		equal(result.InsertedCount, int64(3))
		_, err = c.InsertMany(ctx, []bson.M{{"_id": 4}, {"_id": 3}, {"_id": 5}})
		equal(as[mongo.BulkWriteException](err).WriteErrors[0].Index, 1)
		equal(get(c.CountDocuments(ctx, bson.M{})), int64(4))
	}},
	{"a duplicate tells its key", func(ctx context.Context, db *mongo.Database) {
		c := db.Collection("items")
		get(c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "sku", Value: 1}}, Options: options.Index().SetUnique(true)}))
		get(c.InsertOne(ctx, bson.M{"_id": 1, "sku": 5}))
		_, err := c.InsertOne(ctx, bson.M{"_id": 2, "sku": 5})
		isTrue(mongo.IsDuplicateKeyError(err), "a duplicate key error")
		one := as[mongo.WriteException](err).WriteErrors[0]
		equal(one.Message, "E11000 duplicate key error collection: go.items index: sku_1 dup key: { sku: 5 }")
		equal(one.Raw.Lookup("keyPattern", "sku").AsInt64(), int64(1))
		equal(one.Raw.Lookup("keyValue", "sku").AsInt64(), int64(5))
		err = c.FindOneAndUpdate(ctx, bson.M{"sku": 6}, bson.M{"$set": bson.M{"_id": 1}}, options.FindOneAndUpdate().SetUpsert(true)).Err()
		isTrue(mongo.IsDuplicateKeyError(err), "a duplicate key error")
	}},
	{"write concerns, also none", func(ctx context.Context, db *mongo.Database) {
		for _, concern := range []*writeconcern.WriteConcern{writeconcern.W1(), writeconcern.Majority(), writeconcern.Journaled(), {W: 0}} {
			c := db.Collection("w", options.Collection().SetWriteConcern(concern))
			result, err := c.InsertOne(ctx, bson.M{"w": 1})
			must(err)
			equal(result.Acknowledged, concern.W != 0)
		}
		// A TiKV cluster keeps three copies of everything.
		c := db.Collection("w", options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: 4}))
		_, err := c.InsertOne(ctx, bson.M{"w": 2})
		isTrue(err != nil, "a fourth node is not there")
	}},
	{"one bulk over collections", func(ctx context.Context, db *mongo.Database) {
		writes := []mongo.ClientBulkWrite{
			{Database: "go", Collection: "a", Model: mongo.NewClientInsertOneModel().SetDocument(bson.M{"_id": 1})},
			{Database: "go", Collection: "b", Model: mongo.NewClientInsertOneModel().SetDocument(bson.M{"_id": 1, "n": 1})},
			{Database: "go", Collection: "b", Model: mongo.NewClientUpdateOneModel().SetFilter(bson.M{"_id": 1}).SetUpdate(bson.M{"$inc": bson.M{"n": 1}})},
		}
		result := get(db.Client().BulkWrite(ctx, writes))
		equal([]int64{result.InsertedCount, result.ModifiedCount}, []int64{2, 1})
	}},
}
