import com.mongodb.AggregationOptions;
import com.mongodb.BasicDBList;
import com.mongodb.BasicDBObject;
import com.mongodb.BulkWriteException;
import com.mongodb.BulkWriteOperation;
import com.mongodb.BulkWriteResult;
import com.mongodb.CommandFailureException;
import com.mongodb.CommandResult;
import com.mongodb.Cursor;
import com.mongodb.DB;
import com.mongodb.DBCollection;
import com.mongodb.DBCursor;
import com.mongodb.DBObject;
import com.mongodb.DuplicateKeyException;
import com.mongodb.MongoClient;
import com.mongodb.MongoClientOptions;
import com.mongodb.MongoException;
import com.mongodb.ServerAddress;
import com.mongodb.WriteConcern;
import com.mongodb.WriteResult;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.bson.types.ObjectId;

/** The Java driver 2.14: commands and queries in OP_QUERY, unacknowledged writes in legacy opcodes. */
public final class LegacyDriver {
    private static MongoClient client;

    public static void main(String[] args) throws Exception {
        Logger.getLogger("com.mongodb").setLevel(Level.SEVERE);
        int port = Integer.parseInt(System.getenv("FROND_PORT"));
        MongoClientOptions options = MongoClientOptions.builder().connectTimeout(10_000).build();
        client = new MongoClient(new ServerAddress("127.0.0.1", port), options);
        Tap tap = new Tap();
        tap.test("insert, index, query with sort and limit", LegacyDriver::insertAndQuery);
        tap.test("update operators and upsert", LegacyDriver::update);
        tap.test("save and remove", LegacyDriver::saveAndRemove);
        tap.test("find and modify", LegacyDriver::findAndModify);
        tap.test("ten thousand documents page by page", LegacyDriver::pages);
        tap.test("killed cursors are gone", LegacyDriver::killCursors);
        tap.test("a duplicate is error 11000", LegacyDriver::duplicates);
        tap.test("bulks name the failing index", LegacyDriver::bulks);
        tap.test("unacknowledged writes arrive", LegacyDriver::unacknowledged);
        tap.test("unacknowledged writes from many threads arrive", LegacyDriver::unacknowledgedThreads);
        tap.test("write concerns", LegacyDriver::writeConcerns);
        tap.test("aggregate, count, distinct", LegacyDriver::aggregate);
        tap.test("collections, databases and indexes", LegacyDriver::catalog);
        tap.test("unknown commands and bad queries are refused", LegacyDriver::refusals);
        tap.run();
    }

    private static BasicDBObject doc(Object... pairs) {
        BasicDBObject document = new BasicDBObject();
        for (int i = 0; i < pairs.length; i += 2) {
            document.put((String) pairs[i], pairs[i + 1]);
        }
        return document;
    }

    private static DBCollection fresh(String name) {
        DBCollection collection = client.getDB("java").getCollection(name);
        collection.drop();
        return collection;
    }

    private static List<Object> ids(Iterable<DBObject> documents) {
        List<Object> found = new ArrayList<>();
        for (DBObject document : documents) {
            found.add(document.get("_id"));
        }
        return found;
    }

    private static List<DBObject> numbers(int from, int to) {
        List<DBObject> documents = new ArrayList<>();
        for (int n = from; n < to; n++) {
            documents.add(doc("_id", n, "k", n % 10, "s", "text " + n));
        }
        return documents;
    }

    private static void insertAndQuery() {
        DBCollection c = fresh("c");
        c.createIndex(doc("k", -1));
        DBObject own = doc("when", new Date(1345725000123L), "long", 1L << 53, "list", Arrays.asList(1, "x"));
        c.insert(own);
        Tap.equal(own.get("_id") instanceof ObjectId, true);
        Tap.equal(c.findOne(own.get("_id")).get("when"), new Date(1345725000123L));
        Tap.equal(c.findOne(doc("list", "x")).get("long"), 1L << 53);
        c.remove(own);
        c.insert(numbers(0, 100));
        DBCursor cursor = c.find(doc("k", doc("$gte", 8)), doc("s", 0)).sort(doc("k", -1).append("_id", 1));
        Tap.equal(ids(cursor.limit(3)), Arrays.<Object>asList(9, 19, 29));
        Tap.equal(ids(c.find().sort(doc("_id", 1)).skip(98)), Arrays.<Object>asList(98, 99));
        Tap.equal(c.find(doc("k", 3)).hint(doc("k", -1)).count(), 10);
        Tap.equal(c.findOne(doc("s", "none")), null);
        Tap.equal(c.find(doc("k", 3)).explain() != null, true);
    }

    private static void update() {
        DBCollection c = fresh("u");
        c.insert(doc("_id", 1, "n", 1, "list", Arrays.asList(1, 2)));
        WriteResult result = c.update(
            doc("_id", 1), doc("$inc", doc("n", 5), "$push", doc("list", 3), "$set", doc("a.b", true)));
        Tap.equal(result.getN(), 1);
        Tap.equal(result.isUpdateOfExisting(), true);
        Tap.equal(
            c.findOne(),
            doc("_id", 1, "n", 6, "list", list(1, 2, 3), "a", doc("b", true)));
        c.update(doc("_id", 1), doc("$pull", doc("list", 2), "$unset", doc("a", "")));
        Tap.equal(c.findOne(), doc("_id", 1, "n", 6, "list", list(1, 3)));
        result = c.update(doc("_id", 7), doc("$set", doc("x", 1)), true, false);
        Tap.equal(result.getUpsertedId(), 7);
        Tap.equal(result.isUpdateOfExisting(), false);
        Tap.equal(c.update(new BasicDBObject(), doc("$set", doc("all", 1)), false, true).getN(), 2);
        c.update(doc("_id", 7), doc("replaced", true));
        Tap.equal(c.findOne(7), doc("_id", 7, "replaced", true));
    }

    private static BasicDBList list(Object... values) {
        BasicDBList list = new BasicDBList();
        list.addAll(Arrays.asList(values));
        return list;
    }

    private static void saveAndRemove() {
        DBCollection c = fresh("s");
        c.save(doc("_id", 1, "a", 1));
        c.save(doc("_id", 1, "b", 2));
        Tap.equal(c.findOne(), doc("_id", 1, "b", 2));
        c.insert(numbers(10, 20));
        Tap.equal(c.remove(doc("_id", doc("$gte", 15))).getN(), 5);
        Tap.equal(c.count(), 6L);
        c.remove(new BasicDBObject());
        Tap.equal(c.count(), 0L);
    }

    private static void findAndModify() {
        DBCollection c = fresh("f");
        c.insert(numbers(0, 5));
        DBObject old = c.findAndModify(doc("k", doc("$gt", 1)), doc("k", -1), doc("$inc", doc("k", 10)));
        Tap.equal(old.get("k"), 4);
        DBObject changed = c.findAndModify(doc("_id", 0), null, null, false, doc("$set", doc("z", 1)), true, false);
        Tap.equal(changed.get("z"), 1);
        Tap.equal(c.findAndRemove(doc("_id", 0)).get("z"), 1);
        Tap.equal(c.findAndModify(doc("_id", 99), null, null, false, doc("$set", doc("z", 1)), true, true).get("_id"), 99);
    }

    private static void pages() {
        DBCollection c = fresh("pages");
        for (int start = 0; start < 10_000; start += 1000) {
            c.insert(numbers(start, start + 1000));
        }
        int expected = 0;
        for (DBObject document : c.find().sort(doc("_id", 1)).batchSize(100)) {
            Tap.equal(document.get("_id"), expected++);
        }
        Tap.equal(expected, 10_000);
        Tap.equal(c.find(doc("k", 4)).batchSize(7).toArray().size(), 1000);
        Tap.equal(c.find().limit(250).batchSize(100).toArray().size(), 250);
    }

    private static void killCursors() throws Exception {
        DBCollection c = fresh("kill");
        c.insert(numbers(0, 500));
        DBCursor cursor = c.find().batchSize(5);
        cursor.next();
        long id = cursor.getCursorId();
        Tap.equal(id != 0, true);
        cursor.close();
        // Single documents: it has not ended before the message arrives.
        DBObject more = doc("getMore", id, "collection", "kill", "batchSize", 1);
        Tap.waitUntil("a killed cursor", () -> client.getDB("java").command(more).getInt("code", 0) == 43);
    }

    private static void duplicates() throws Exception {
        DBCollection c = fresh("d");
        c.createIndex(doc("u", 1), doc("unique", true));
        c.insert(doc("_id", 1, "u", 1));
        Tap.equal(Tap.raises(DuplicateKeyException.class, () -> c.insert(doc("_id", 2, "u", 1))).getCode(), 11000);
        Tap.equal(Tap.raises(DuplicateKeyException.class, () -> c.insert(doc("_id", 1))).getCode(), 11000);
        c.insert(doc("_id", 3, "u", 3));
        DuplicateKeyException error = Tap.raises(
            DuplicateKeyException.class, () -> c.update(doc("_id", 3), doc("$set", doc("u", 1))));
        Tap.equal(error.getMessage().contains("E11000"), true);
        Tap.equal(c.count(), 2L);
    }

    private static void bulks() throws Exception {
        DBCollection c = fresh("b");
        BulkWriteOperation good = c.initializeOrderedBulkOperation();
        good.insert(doc("_id", 1, "n", 1));
        good.insert(doc("_id", 2, "n", 2));
        good.find(doc("_id", 1)).updateOne(doc("$inc", doc("n", 1)));
        good.find(doc("_id", 3)).upsert().updateOne(doc("$set", doc("n", 3)));
        good.find(doc("_id", 2)).removeOne();
        BulkWriteResult result = good.execute();
        Tap.equal(result.getInsertedCount(), 2);
        Tap.equal(result.getModifiedCount(), 1);
        Tap.equal(result.getUpserts().get(0).getId(), 3);
        Tap.equal(result.getRemovedCount(), 1);
        BulkWriteOperation bad = c.initializeUnorderedBulkOperation();
        bad.insert(doc("_id", 10));
        bad.insert(doc("_id", 1));
        bad.insert(doc("_id", 11));
        BulkWriteException error = Tap.raises(BulkWriteException.class, bad::execute);
        Tap.equal(error.getWriteErrors().size(), 1);
        Tap.equal(error.getWriteErrors().get(0).getIndex(), 1);
        Tap.equal(error.getWriteErrors().get(0).getCode(), 11000);
        Tap.equal(error.getWriteResult().getInsertedCount(), 2);
    }

    private static void waitForCount(DBCollection c, DBObject query, long expected) throws Exception {
        Tap.waitUntil(expected + " documents", () -> c.count(query) == expected);
    }

    private static void unacknowledged() throws Exception {
        DBCollection c = fresh("w0");
        for (int n = 0; n < 2000; n++) {
            c.insert(doc("_id", n), WriteConcern.UNACKNOWLEDGED);
        }
        c.insert(numbers(2000, 5000), WriteConcern.UNACKNOWLEDGED);
        c.insert(doc("_id", 1), WriteConcern.UNACKNOWLEDGED);
        waitForCount(c, new BasicDBObject(), 5000);
        c.update(new BasicDBObject(), doc("$set", doc("x", 1)), false, true, WriteConcern.UNACKNOWLEDGED);
        c.update(doc("_id", 6000), doc("$set", doc("x", 1)), true, false, WriteConcern.UNACKNOWLEDGED);
        c.remove(doc("_id", doc("$lt", 4990)), WriteConcern.UNACKNOWLEDGED);
        waitForCount(c, doc("x", 1), 11);
        Tap.equal(c.count(), 11L);
    }

    private static void unacknowledgedThreads() throws Exception {
        DBCollection c = fresh("w0threads");
        ExecutorService pool = Executors.newFixedThreadPool(8);
        for (int thread = 0; thread < 8; thread++) {
            int first = thread * 2500;
            pool.submit(() -> {
                for (int n = first; n < first + 2500; n++) {
                    c.insert(doc("_id", n, "pad", "0123456789".repeat(20)), WriteConcern.UNACKNOWLEDGED);
                }
            });
        }
        pool.shutdown();
        Tap.equal(pool.awaitTermination(10, TimeUnit.MINUTES), true);
        waitForCount(c, new BasicDBObject(), 20_000);
    }

    private static void writeConcerns() {
        DBCollection c = fresh("w");
        WriteConcern[] concerns = {
            WriteConcern.ACKNOWLEDGED, WriteConcern.JOURNALED, WriteConcern.FSYNCED, WriteConcern.MAJORITY
        };
        for (int n = 0; n < concerns.length; n++) {
            c.insert(doc("_id", n), concerns[n]);
        }
        Tap.equal(c.count(), 4L);
    }

    private static void aggregate() {
        DBCollection c = fresh("a");
        c.insert(numbers(0, 100));
        List<DBObject> pipeline = Arrays.<DBObject>asList(
            doc("$match", doc("k", doc("$lt", 3))),
            doc("$group", doc("_id", "$k", "n", doc("$sum", 1))),
            doc("$sort", doc("_id", 1)));
        List<Object> found = new ArrayList<>();
        AggregationOptions options =
            AggregationOptions.builder().outputMode(AggregationOptions.OutputMode.CURSOR).build();
        Cursor cursor = c.aggregate(pipeline, options);
        while (cursor.hasNext()) {
            found.add(cursor.next());
        }
        Tap.equal(found, Arrays.<Object>asList(doc("_id", 0, "n", 10), doc("_id", 1, "n", 10), doc("_id", 2, "n", 10)));
        // Without options the driver requests the result as one document.
        found.clear();
        for (DBObject group : c.aggregate(pipeline).results()) {
            found.add(group);
        }
        Tap.equal(found.size(), 3);
        Tap.equal(found.get(2), doc("_id", 2, "n", 10));
        Tap.equal(c.explainAggregate(pipeline, options).ok(), true);
        Tap.equal(((DBObject) c.find(doc("k", 5)).explain().get("executionStats")).get("nReturned"), 10);
        Tap.equal(c.count(doc("k", 5)), 10L);
        Tap.equal(c.getCount(doc("k", 5), null, 3, 2), 3L);
        Tap.equal(new TreeSet<Object>(c.distinct("k", doc("_id", doc("$lt", 4)))), new TreeSet<Object>(Arrays.asList(0, 1, 2, 3)));
    }

    private static void catalog() {
        DB db = client.getDB("javacat");
        db.dropDatabase();
        db.createCollection("made", new BasicDBObject());
        db.getCollection("other").insert(doc("_id", 1));
        Tap.equal(db.getCollectionNames(), new TreeSet<>(Arrays.asList("made", "other")));
        Tap.equal(client.getDatabaseNames().contains("javacat"), true);
        DBCollection other = db.getCollection("other");
        other.createIndex(doc("a", 1, "b", -1), "named", true);
        Tap.equal(other.getIndexInfo().size(), 2);
        Tap.equal(other.getIndexInfo().get(1).get("name"), "named");
        Tap.equal(other.getStats().getInt("count"), 1);
        other.dropIndex("named");
        Tap.equal(other.getIndexInfo().size(), 1);
        other.rename("renamed");
        Tap.equal(db.collectionExists("renamed"), true);
        db.dropDatabase();
        Tap.equal(db.getCollectionNames().isEmpty(), true);
    }

    private static void refusals() throws Exception {
        CommandResult result = client.getDB("java").command("nosuch");
        Tap.equal(result.ok(), false);
        Tap.equal(result.getInt("code"), 59);
        DBCollection c = fresh("r");
        c.insert(numbers(0, 3));
        MongoException error = Tap.raises(MongoException.class, () -> c.find(doc("k", doc("$nosuch", 1))).toArray());
        Tap.equal(error.getCode(), 2);
        Tap.raises(CommandFailureException.class, () -> c.rename("a$b"));
    }
}
