package main

import (
	"time"

	"github.com/globalsign/mgo"
	"github.com/globalsign/mgo/bson"
)

// Followed by clients of a replica set.
var watching = []test{
	{"a change stream, resumed", func(db *mgo.Database) {
		c := db.C("orders")
		must(c.Insert(bson.M{"_id": 0}))
		type event struct {
			Type string `bson:"operationType"`
			Doc  bson.M `bson:"fullDocument"`
		}
		pipeline := []bson.M{{"$match": bson.M{"operationType": bson.M{"$in": []string{"insert", "update"}}}}}
		options := mgo.ChangeStreamOptions{FullDocument: mgo.UpdateLookup, MaxAwaitTimeMS: 10 * time.Millisecond}
		next := func(stream *mgo.ChangeStream) (found event) {
			for !stream.Next(&found) {
				must(stream.Err())
			}
			return found
		}
		stream := get(c.Watch(pipeline, options))
		must(c.Insert(bson.M{"_id": 1}))
		must(c.UpdateId(1, bson.M{"$set": bson.M{"a": 2}}))
		equal(next(stream), event{"insert", bson.M{"_id": 1}})
		token := stream.ResumeToken()
		must(stream.Close())
		options.ResumeAfter = token
		stream = get(c.Watch(pipeline, options))
		equal(next(stream), event{"update", bson.M{"_id": 1, "a": 2}})
		must(stream.Close())
	}},
}
