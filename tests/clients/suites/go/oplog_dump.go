package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
)

// mongodump --oplog and mongorestore --oplogReplay, with the commands that they send.
var dumping = []test{
	{"mongodump --oplog beside writes, mongorestore --oplogReplay into an empty server", func(ctx context.Context, db *mongo.Database) {
		other := startServer(ctx)
		defer other.stop()
		fillForOplog(ctx, db)
		changing := startChanges(ctx, db)
		start := oplogCopyStart(ctx, db)
		collections := dump(ctx, db)
		changing.waitFor(ctx, 200)
		end := lastTime(ctx, db)
		checkStillThere(ctx, db, start)
		entries := oplogBetween(ctx, db, start, end)
		checkStillThere(ctx, db, start)
		changing.stop()
		isTrue(len(entries) > 100, fmt.Sprintf("only %d entries while the dump ran", len(entries)))

		target := other.client.Database(db.Name())
		replay := &replay{client: other.client}
		indexes := map[string]bson.A{}
		for _, one := range collections {
			indexes[one.name] = one.specs
			one.specs = nil
			restore(ctx, target, one)
		}
		for _, raw := range entries {
			replay.take(ctx, raw)
		}
		isTrue(replay.transactions > 0, "no transaction was replayed")
		isTrue(replay.commands > 0, "no command was replayed")
		isTrue(replay.applied > 100, "hardly anything was replayed")
		// The state is that of the dump's end; what was written later is not there.
		equal(stateOf(ctx, target), stateAt(ctx, db, end))
	}},
	{"applyOps does what the tools and administrators expect", func(ctx context.Context, db *mongo.Database) {
		admin := db.Client().Database("admin")
		apply := func(operations ...bson.D) bson.M {
			var reply bson.M
			must(admin.RunCommand(ctx, bson.D{{Key: "applyOps", Value: operations}}).Decode(&reply))
			return reply
		}
		ns := db.Name() + ".applied"
		one := func(code string, object bson.D, more ...bson.E) bson.D {
			return append(bson.D{{Key: "op", Value: code}, {Key: "ns", Value: ns}, {Key: "o", Value: object}}, more...)
		}
		must(db.CreateCollection(ctx, "applied"))
		reply := apply(one("i", bson.D{{Key: "_id", Value: 1}, {Key: "a", Value: 1}, {Key: "l", Value: bson.A{1, 2, 3}}}), one("i", bson.D{{Key: "_id", Value: 2}}))
		equal([]any{reply["applied"], reply["results"]}, []any{int32(2), bson.A{true, true}})
		key := bson.E{Key: "o2", Value: bson.D{{Key: "_id", Value: 1}}}
		diff := bson.D{{Key: "$v", Value: 2}, {Key: "diff", Value: bson.D{
			{Key: "u", Value: bson.D{{Key: "a", Value: 5}}}, {Key: "i", Value: bson.D{{Key: "n", Value: "new"}}},
			{Key: "sl", Value: bson.D{{Key: "a", Value: true}, {Key: "l", Value: 2}, {Key: "u0", Value: "x"}}},
		}}}
		apply(one("u", diff, key))
		var found bson.M
		must(db.Collection("applied").FindOne(ctx, bson.M{"_id": 1}).Decode(&found))
		equal(found, bson.M{"_id": int32(1), "a": int32(5), "l": bson.A{"x", int32(2)}, "n": "new"})
		// Applied again, entries leave the same.
		apply(one("i", bson.D{{Key: "_id", Value: 2}, {Key: "again", Value: true}}), one("d", bson.D{{Key: "_id", Value: 99}}))
		apply(one("d", bson.D{{Key: "_id", Value: 2}}), one("n", bson.D{{Key: "msg", Value: "nothing"}}))
		equal(get(db.Collection("applied").CountDocuments(ctx, bson.M{})), int64(1))
		command := bson.D{{Key: "op", Value: "c"}, {Key: "ns", Value: db.Name() + ".$cmd"}, {Key: "o", Value: bson.D{{Key: "create", Value: "made"}, {Key: "capped", Value: true}, {Key: "size", Value: 4096}}}}
		apply(command)
		equal(get(db.ListCollectionNames(ctx, bson.M{"name": "made", "options.capped": true})), []string{"made"})
		for _, wrong := range []bson.D{
			{{Key: "op", Value: "x"}, {Key: "ns", Value: ns}, {Key: "o", Value: bson.D{}}},
			{{Key: "op", Value: "i"}, {Key: "ns", Value: "nodots"}, {Key: "o", Value: bson.D{{Key: "_id", Value: 1}}}},
			{{Key: "op", Value: "i"}, {Key: "ns", Value: ns}},
		} {
			failed := admin.RunCommand(ctx, bson.D{{Key: "applyOps", Value: bson.A{wrong}}}).Err()
			isTrue(failed != nil, fmt.Sprintf("%v was applied", wrong))
		}
	}},
}

func lastTime(ctx context.Context, db *mongo.Database) bson.Timestamp {
	var last entry
	must(oplogOf(db).FindOne(ctx, bson.M{}, options.FindOne().SetSort(bson.M{"$natural": -1})).Decode(&last))
	return last.Time
}

// oplogCopyStart is the time of the oldest open transaction, or of the last entry.
func oplogCopyStart(ctx context.Context, db *mongo.Database) bson.Timestamp {
	var primary bson.M
	must(db.Client().Database("admin").RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Decode(&primary))
	isTrue(primary["hosts"] != nil, "it is a replica set")
	sessions := db.Client().Database("config").Collection("transactions", options.Collection().SetReadConcern(readconcern.Local()))
	filter := bson.D{{Key: "state", Value: bson.D{{Key: "$in", Value: bson.A{"prepared", "inProgress"}}}}}
	err := sessions.FindOne(ctx, filter, options.FindOne().SetSort(bson.D{{Key: "startOpTime", Value: 1}})).Err()
	isTrue(err == nil || err == mongo.ErrNoDocuments, fmt.Sprint(err))
	return lastTime(ctx, db)
}

func checkStillThere(ctx context.Context, db *mongo.Database, start bson.Timestamp) {
	var first entry
	must(oplogOf(db).FindOne(ctx, bson.M{}, options.FindOne().SetSort(bson.M{"$natural": 1})).Decode(&first))
	isTrue(first.Time.Compare(start) <= 0, "the oplog was trimmed")
}

func oplogBetween(ctx context.Context, db *mongo.Database, start, end bson.Timestamp) []bson.Raw {
	between := bson.M{"$and": bson.A{bson.M{"ts": bson.M{"$gte": start}}, bson.M{"ts": bson.M{"$lte": end}}}}
	cursor := get(oplogOf(db).Find(ctx, between, options.Find().SetNoCursorTimeout(true)))
	var entries []bson.Raw
	for cursor.Next(ctx) {
		entries = append(entries, slices.Clone(cursor.Current))
	}
	must(cursor.Err())
	return entries
}

func fillForOplog(ctx context.Context, db *mongo.Database) {
	for _, name := range []string{"counters", "rows", "moved"} {
		must(db.CreateCollection(ctx, name))
	}
	models := []any{}
	for n := range 2000 {
		models = append(models, bson.D{{Key: "_id", Value: n}, {Key: "n", Value: 0}, {Key: "list", Value: bson.A{1, 2}}})
	}
	get(db.Collection("counters").InsertMany(ctx, models))
	must(db.RunCommand(ctx, bson.D{{Key: "createIndexes", Value: "rows"}, {Key: "indexes", Value: bson.A{
		bson.D{{Key: "key", Value: bson.D{{Key: "n", Value: 1}}}, {Key: "name", Value: "n_1"}},
	}}}).Err())
}

// changes are writes that go on in the background until they are stopped.
type changes struct {
	count  atomic.Int64
	cancel chan struct{}
	ended  chan any
}

func startChanges(ctx context.Context, db *mongo.Database) *changes {
	w := &changes{cancel: make(chan struct{}), ended: make(chan any, 1)}
	go func() {
		defer func() { w.ended <- recover() }()
		for n := 0; ; n++ {
			select {
			case <-w.cancel:
				return
			default:
			}
			w.step(ctx, db, n)
			w.count.Add(1)
		}
	}()
	w.waitFor(ctx, 20)
	return w
}

func (w *changes) step(ctx context.Context, db *mongo.Database, n int) {
	rows, counters := db.Collection("rows"), db.Collection("counters")
	switch n % 6 {
	case 0:
		get(rows.InsertOne(ctx, bson.D{{Key: "_id", Value: n}, {Key: "n", Value: n}}))
	case 1:
		from := n * 7 % 1900
		many := bson.M{"_id": bson.M{"$gte": from, "$lt": from + 20}}
		get(counters.UpdateMany(ctx, many, bson.M{"$inc": bson.M{"n": 1}, "$push": bson.M{"list": n}}))
	case 2:
		get(rows.ReplaceOne(ctx, bson.M{"_id": n - 2}, bson.M{"replaced": n}))
	case 3:
		session := get(db.Client().StartSession())
		defer session.EndSession(ctx)
		_, err := session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
			get(db.Collection("moved").InsertOne(ctx, bson.D{{Key: "_id", Value: n}}))
			get(counters.UpdateByID(ctx, n%2000, bson.M{"$set": bson.M{"moved": n}, "$pull": bson.M{"list": 1}}))
			get(rows.InsertOne(ctx, bson.D{{Key: "_id", Value: n}}))
			return nil, nil
		})
		must(err)
	case 4:
		get(counters.DeleteOne(ctx, bson.M{"_id": 1999 - n}))
	case 5:
		name := fmt.Sprint("made_", n%36)
		if n%12 == 5 {
			get(db.Collection(name).InsertOne(ctx, bson.M{"_id": n}))
			get(db.Collection(name).InsertOne(ctx, bson.M{"_id": -n}))
		} else {
			must(db.Collection(fmt.Sprint("made_", (n-6)%36)).Drop(ctx))
		}
	}
}

func (w *changes) waitFor(ctx context.Context, more int64) {
	for until := w.count.Load() + more; w.count.Load() < until; time.Sleep(5 * time.Millisecond) {
		must(ctx.Err())
		select {
		case found := <-w.ended:
			panic(found)
		default:
		}
	}
}

func (w *changes) stop() {
	close(w.cancel)
	if found := <-w.ended; found != nil {
		panic(found)
	}
}

// oplogEntry has the fields of an entry that the tools send on.
type oplogEntry struct {
	Time       bson.Timestamp `bson:"ts"`
	Term       *int64         `bson:"t"`
	Version    int            `bson:"v"`
	Operation  string         `bson:"op"`
	Namespace  string         `bson:"ns"`
	Object     bson.D         `bson:"o"`
	Query      bson.D         `bson:"o2,omitempty"`
	UUID       *bson.Binary   `bson:"ui,omitempty"`
	Session    bson.Raw       `bson:"lsid,omitempty"`
	Number     *int64         `bson:"txnNumber,omitempty"`
	PrevOpTime bson.Raw       `bson:"prevOpTime,omitempty"`
}

// replay applies entries one by one with applyOps, and transactions once they are whole.
type replay struct {
	client                          *mongo.Client
	applied, transactions, commands int
	open                            map[string][]oplogEntry
}

func (r *replay) take(ctx context.Context, raw bson.Raw) {
	var one oplogEntry
	must(bson.Unmarshal(raw, &one))
	if one.Operation == "n" || strings.HasPrefix(one.Namespace, "config.") {
		return
	}
	if one.Operation == "c" && one.Object[0].Key == "applyOps" && one.Number != nil {
		r.transaction(ctx, one)
		return
	}
	r.apply(ctx, one)
}

func (r *replay) transaction(ctx context.Context, one oplogEntry) {
	key := fmt.Sprint(one.Session, *one.Number)
	if r.open == nil {
		r.open = map[string][]oplogEntry{}
	}
	for _, inner := range one.Object[0].Value.(bson.A) {
		var nested oplogEntry
		must(bson.Unmarshal(get(bson.Marshal(inner)), &nested))
		nested.Time = one.Time
		r.open[key] = append(r.open[key], nested)
	}
	for _, field := range one.Object {
		if field.Key == "partialTxn" {
			return
		}
	}
	r.transactions++
	for _, nested := range r.open[key] {
		r.apply(ctx, nested)
	}
	delete(r.open, key)
}

func (r *replay) apply(ctx context.Context, one oplogEntry) {
	one.UUID = nil
	if one.Operation == "c" {
		r.commands++
	}
	command := bson.D{{Key: "applyOps", Value: []oplogEntry{one}}, {Key: "bypassDocumentValidation", Value: false}}
	var reply bson.M
	must(r.client.Database("admin").RunCommand(ctx, command).Decode(&reply))
	isTrue(reply["ok"] == 1.0, fmt.Sprint(reply))
	r.applied++
}

// stateOf has all documents by collection and _id, as text.
func stateOf(ctx context.Context, db *mongo.Database) map[string][]string {
	state := map[string][]string{}
	for _, name := range get(db.ListCollectionNames(ctx, bson.M{})) {
		cursor := get(db.Collection(name).Find(ctx, bson.M{}, options.Find().SetSort(bson.M{"_id": 1})))
		documents := []string{}
		for cursor.Next(ctx) {
			documents = append(documents, cursor.Current.String())
		}
		must(cursor.Err())
		state[name] = documents
	}
	return state
}

// stateAt has the documents of a time, from another server into which all entries up to then were replayed.
func stateAt(ctx context.Context, db *mongo.Database, end bson.Timestamp) map[string][]string {
	other := startServer(ctx)
	defer other.stop()
	replay := &replay{client: other.client}
	for _, raw := range oplogBetween(ctx, db, bson.Timestamp{}, end) {
		ns := raw.Lookup("ns").StringValue()
		if ns == "admin.$cmd" || strings.HasPrefix(ns, db.Name()+".") {
			if bytes.Contains(raw, []byte("createIndexes")) {
				continue
			}
			replay.take(ctx, raw)
		}
	}
	return stateOf(ctx, other.client.Database(db.Name()))
}

// server is one of its own, empty.
type server struct {
	process *exec.Cmd
	folder  string
	client  *mongo.Client
}

var portInLog = regexp.MustCompile(`aiting for connections.*?port\D*(\d+)`)

// portIn returns the port that a server has chosen, from its log.
func portIn(output io.ReadCloser) string {
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if found := portInLog.FindStringSubmatch(lines.Text()); found != nil {
			go func() { _, _ = io.Copy(io.Discard, output) }()
			return found[1]
		}
	}
	panic(fmt.Sprint("the server has ended: ", lines.Err()))
}

func startServer(ctx context.Context) *server {
	folder := get(os.MkdirTemp("", "frond-restored-"))
	process := exec.Command(os.Getenv("FROND_BINARY"), "serve", "--quiet", "--dbpath", filepath.Join(folder, "db"), "--port", "0", "--unixSocketPrefix", folder)
	must(os.Mkdir(filepath.Join(folder, "db"), 0o755))
	output := get(process.StdoutPipe())
	must(process.Start())
	uri := fmt.Sprintf("mongodb://127.0.0.1:%s/?directConnection=true", portIn(output))
	s := &server{process, folder, get(mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(patience)))}
	must(s.client.Ping(ctx, nil))
	return s
}

func (s *server) stop() {
	_ = s.client.Disconnect(context.Background())
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
	_ = os.RemoveAll(s.folder)
}
