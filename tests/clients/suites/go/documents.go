package main

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

type size struct {
	Height int32   `bson:"h"`
	Width  float64 `bson:"w"`
	Unit   string  `bson:"uom,omitempty"`
}

type stock struct {
	Warehouse string `bson:"warehouse"`
	Count     int    `bson:"n"`
}

type item struct {
	ID       bson.ObjectID     `bson:"_id,omitempty"`
	Name     string            `bson:"name"`
	Sku      int               `bson:"sku"`
	Price    bson.Decimal128   `bson:"price"`
	Tags     []string          `bson:"tags"`
	Size     *size             `bson:"size,omitempty"`
	Stock    []stock           `bson:"stock,omitempty"`
	Labels   map[string]string `bson:"labels,omitempty"`
	Made     time.Time         `bson:"made"`
	Secret   string            `bson:"-"`
	Embedded `bson:",inline"`
}

// Embedded is inlined: its fields are those of the item.
type Embedded struct {
	Checked bool `bson:"checked"`
}

func decimal(text string) bson.Decimal128 { return get(bson.ParseDecimal128(text)) }

// fill inserts n items with ten different tags.
func fill(ctx context.Context, c *mongo.Collection, n int) {
	items := make([]item, n)
	for i := range items {
		items[i] = item{
			Name: "item " + string(rune('a'+i%26)), Sku: i, Price: decimal("1.50"), Tags: []string{"t" + string(rune('0'+i%10)), "all"},
			Size: &size{Height: int32(i), Width: 1.5}, Stock: []stock{{"A", i}, {"B", 2 * i}}, Made: time.UnixMilli(int64(i) * 1000).UTC(),
		}
	}
	equal(len(get(c.InsertMany(ctx, items)).InsertedIDs), n)
}

var documents = []test{
	{"the server introduces itself", func(ctx context.Context, db *mongo.Database) {
		must(db.Client().Ping(ctx, nil))
		var info struct {
			Version string `bson:"version"`
			Array   []int  `bson:"versionArray"`
		}
		must(db.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info))
		equal(info.Array[0] >= 7, true)
	}},
	{"a struct comes back as it was", func(ctx context.Context, db *mongo.Database) {
		c := db.Collection("items")
		in := item{
			Name: "chair", Sku: 7, Price: decimal("19.90"), Tags: []string{"wood"}, Size: &size{Height: 90, Width: 40.5},
			Labels: map[string]string{"de": "Stuhl"}, Made: time.UnixMilli(1_700_000_000_123).UTC(), Secret: "not stored",
			Embedded: Embedded{Checked: true},
		}
		id := get(c.InsertOne(ctx, in)).InsertedID.(bson.ObjectID)
		var out item
		must(c.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&out))
		in.ID, in.Secret = id, ""
		equal(out, in)
		raw := get(c.FindOne(ctx, bson.M{"_id": id}).Raw())
		equal(raw.Lookup("size", "h").Type, bson.TypeInt32)
		equal(raw.Lookup("sku").Type, bson.TypeInt32)
		equal(raw.Lookup("checked").Boolean(), true)
		_, err := raw.LookupErr("size", "uom")
		isTrue(err != nil, "omitempty leaves the field out")
	}},
	{"values of every type", func(ctx context.Context, db *mongo.Database) {
		c := db.Collection("types")
		in := bson.D{
			{Key: "_id", Value: "types"}, {Key: "double", Value: 1.25}, {Key: "string", Value: "zwölf"},
			{Key: "doc", Value: bson.D{{Key: "a", Value: int32(1)}}}, {Key: "array", Value: bson.A{int32(1), "two", nil}},
			{Key: "binary", Value: bson.Binary{Subtype: 0x80, Data: []byte{0, 255}}}, {Key: "oid", Value: bson.NewObjectID()},
			{Key: "yes", Value: true}, {Key: "date", Value: bson.DateTime(-1)}, {Key: "null", Value: nil},
			{Key: "regex", Value: bson.Regex{Pattern: "^a", Options: "i"}}, {Key: "code", Value: bson.JavaScript("f()")},
			{Key: "i32", Value: int32(5)}, {Key: "ts", Value: bson.Timestamp{T: 5, I: 6}}, {Key: "i64", Value: int64(1) << 60},
			{Key: "dec", Value: decimal("-1E+3")}, {Key: "min", Value: bson.MinKey{}}, {Key: "max", Value: bson.MaxKey{}},
		}
		get(c.InsertOne(ctx, in))
		var out bson.D
		must(c.FindOne(ctx, bson.D{}).Decode(&out))
		equal(out, in)
		for _, name := range []string{"double", "string", "object", "array", "binData", "objectId", "bool", "date", "null", "regex", "javascript", "int", "timestamp", "long", "decimal", "minKey", "maxKey"} {
			at := map[string]string{"object": "doc", "binData": "binary", "objectId": "oid", "bool": "yes", "javascript": "code", "int": "i32", "timestamp": "ts", "long": "i64", "decimal": "dec", "minKey": "min", "maxKey": "max"}[name]
			if at == "" {
				at = name
			}
			equal(get(c.CountDocuments(ctx, bson.M{at: bson.M{"$type": name}})), int64(1))
		}
	}},
	{"filters, sort, skip, limit, projection", func(ctx context.Context, db *mongo.Database) {
		c := db.Collection("items")
		fill(ctx, c, 100)
		find := options.Find().SetSort(bson.D{{Key: "sku", Value: -1}}).SetSkip(2).SetLimit(3).SetProjection(bson.M{"_id": 0, "sku": 1})
		var found []bson.M
		must(get(c.Find(ctx, bson.M{"tags": "t5"}, find)).All(ctx, &found))
		equal(found, []bson.M{{"sku": int32(75)}, {"sku": int32(65)}, {"sku": int32(55)}})
		count := func(filter any) int64 { return get(c.CountDocuments(ctx, filter)) }
		equal(count(bson.M{"$or": bson.A{bson.M{"sku": 1}, bson.M{"size.h": bson.M{"$gt": 97}}}}), int64(3))
		equal(count(bson.M{"stock": bson.M{"$elemMatch": bson.M{"warehouse": "B", "n": bson.M{"$lt": 10}}}}), int64(5))
		equal(count(bson.M{"name": bson.Regex{Pattern: "^ITEM [ab]$", Options: "i"}}), int64(8))
		equal(count(bson.M{"made": bson.M{"$gte": time.UnixMilli(50_000), "$lt": time.UnixMilli(60_000)}}), int64(10))
		equal(count(bson.M{"tags": bson.M{"$all": bson.A{"all", "t1"}}, "price": bson.M{"$gte": decimal("1.5")}}), int64(10))
		equal(count(bson.M{"size.uom": bson.M{"$exists": true}}), int64(0))
		equal(get(c.EstimatedDocumentCount(ctx)), int64(100))
		equal(get(c.CountDocuments(ctx, bson.D{}, options.Count().SetSkip(95).SetLimit(10))), int64(5))
		var tags []string
		must(c.Distinct(ctx, "tags", bson.M{"sku": bson.M{"$lt": 2}}).Decode(&tags))
		equal(tags, []string{"all", "t0", "t1"})
	}},
	{"nothing found is ErrNoDocuments", func(ctx context.Context, db *mongo.Database) {
		err := db.Collection("none").FindOne(ctx, bson.M{"a": 1}).Err()
		isTrue(errors.Is(err, mongo.ErrNoDocuments), "ErrNoDocuments")
		err = db.Collection("none").FindOneAndUpdate(ctx, bson.M{"a": 1}, bson.M{"$set": bson.M{"b": 1}}).Err()
		isTrue(errors.Is(err, mongo.ErrNoDocuments), "ErrNoDocuments")
	}},
	{"cursors: batches, decoding each, remaining length, close", func(ctx context.Context, db *mongo.Database) {
		c := db.Collection("items")
		fill(ctx, c, 2500)
		cursor := get(c.Find(ctx, bson.D{}, options.Find().SetSort(bson.M{"sku": 1}).SetBatchSize(100)))
		count := 0
		for cursor.Next(ctx) {
			var one item
			must(cursor.Decode(&one))
			equal(one.Sku, count)
			if count == 0 {
				equal(cursor.RemainingBatchLength(), 99)
			}
			count++
		}
		must(cursor.Err())
		equal(count, 2500)
		equal(cursor.ID(), int64(0))
		cursor = get(c.Find(ctx, bson.D{}, options.Find().SetBatchSize(2)))
		isTrue(cursor.Next(ctx) && cursor.ID() != 0, "an open cursor")
		id := cursor.ID()
		must(cursor.Close(ctx))
		err := db.RunCommand(ctx, bson.D{{Key: "getMore", Value: id}, {Key: "collection", Value: "items"}}).Err()
		equal(as[mongo.CommandError](err).Code, int32(43))
		raw := get(db.RunCommandCursor(ctx, bson.D{{Key: "find", Value: "items"}, {Key: "batchSize", Value: 1000}}))
		all := []bson.Raw{}
		must(raw.All(ctx, &all))
		equal(len(all), 2500)
	}},
	{"aggregation into structs", func(ctx context.Context, db *mongo.Database) {
		c := db.Collection("items")
		fill(ctx, c, 100)
		pipeline := mongo.Pipeline{
			{{Key: "$unwind", Value: "$stock"}},
			{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$stock.warehouse"}, {Key: "total", Value: bson.M{"$sum": "$stock.n"}}, {Key: "most", Value: bson.M{"$max": "$stock.n"}}}}},
			{{Key: "$sort", Value: bson.M{"_id": 1}}},
		}
		var rows []struct {
			Warehouse   string `bson:"_id"`
			Total, Most int
		}
		must(get(c.Aggregate(ctx, pipeline)).All(ctx, &rows))
		equal(len(rows), 2)
		equal([]int{rows[0].Total, rows[0].Most, rows[1].Total, rows[1].Most}, []int{4950, 99, 9900, 198})
		get(db.Collection("warehouses").InsertMany(ctx, []bson.M{{"_id": "A", "city": "Rome"}, {"_id": "B", "city": "Oslo"}}))
		var joined []bson.M
		must(get(c.Aggregate(ctx, mongo.Pipeline{
			{{Key: "$match", Value: bson.M{"sku": 3}}},
			{{Key: "$lookup", Value: bson.M{"from": "warehouses", "localField": "stock.warehouse", "foreignField": "_id", "as": "where"}}},
			{{Key: "$project", Value: bson.M{"_id": 0, "cities": "$where.city"}}},
		})).All(ctx, &joined))
		equal(joined, []bson.M{{"cities": bson.A{"Rome", "Oslo"}}})
		get(c.Aggregate(ctx, bson.A{bson.M{"$match": bson.M{"sku": bson.M{"$lt": 10}}}, bson.M{"$out": "small"}}))
		equal(get(db.Collection("small").EstimatedDocumentCount(ctx)), int64(10))
		get(c.Aggregate(ctx, bson.A{bson.M{"$match": bson.M{"sku": bson.M{"$lt": 20}}}, bson.M{"$merge": bson.M{"into": "small", "whenMatched": "keepExisting"}}}))
		equal(get(db.Collection("small").EstimatedDocumentCount(ctx)), int64(20))
		_, err := c.Aggregate(ctx, bson.A{bson.M{"$nosuch": 1}})
		equal(as[mongo.CommandError](err).Code, int32(40324))
	}},
}
