import static com.mongodb.client.model.Accumulators.avg;
import static com.mongodb.client.model.Accumulators.push;
import static com.mongodb.client.model.Accumulators.sum;
import static com.mongodb.client.model.Filters.and;
import static com.mongodb.client.model.Filters.elemMatch;
import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Filters.exists;
import static com.mongodb.client.model.Filters.gt;
import static com.mongodb.client.model.Filters.gte;
import static com.mongodb.client.model.Filters.in;
import static com.mongodb.client.model.Filters.lt;
import static com.mongodb.client.model.Filters.not;
import static com.mongodb.client.model.Filters.or;
import static com.mongodb.client.model.Filters.regex;
import static com.mongodb.client.model.Filters.size;
import static com.mongodb.client.model.Filters.type;
import static com.mongodb.client.model.Projections.excludeId;
import static com.mongodb.client.model.Projections.fields;
import static com.mongodb.client.model.Projections.include;
import static com.mongodb.client.model.Sorts.ascending;
import static com.mongodb.client.model.Sorts.descending;
import static com.mongodb.client.model.Updates.addToSet;
import static com.mongodb.client.model.Updates.combine;
import static com.mongodb.client.model.Updates.currentDate;
import static com.mongodb.client.model.Updates.inc;
import static com.mongodb.client.model.Updates.popFirst;
import static com.mongodb.client.model.Updates.pull;
import static com.mongodb.client.model.Updates.pushEach;
import static com.mongodb.client.model.Updates.set;
import static com.mongodb.client.model.Updates.setOnInsert;
import static com.mongodb.client.model.Updates.unset;

import com.mongodb.MongoBulkWriteException;
import com.mongodb.MongoClientException;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.MongoExecutionTimeoutException;
import com.mongodb.MongoGridFSException;
import com.mongodb.MongoQueryException;
import com.mongodb.MongoWriteException;
import com.mongodb.ReadConcern;
import com.mongodb.ReadPreference;
import com.mongodb.WriteConcern;
import com.mongodb.bulk.BulkWriteResult;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoCursor;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.gridfs.GridFSBucket;
import com.mongodb.client.gridfs.GridFSBuckets;
import com.mongodb.client.gridfs.GridFSDownloadStream;
import com.mongodb.client.gridfs.GridFSUploadStream;
import com.mongodb.client.gridfs.model.GridFSFile;
import com.mongodb.client.gridfs.model.GridFSUploadOptions;
import com.mongodb.client.model.Aggregates;
import com.mongodb.client.model.BsonField;
import com.mongodb.client.model.BulkWriteOptions;
import com.mongodb.client.model.DeleteManyModel;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.Facet;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.IndexOptions;
import com.mongodb.client.model.Indexes;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.PushOptions;
import com.mongodb.client.model.ReplaceOneModel;
import com.mongodb.client.model.ReplaceOptions;
import com.mongodb.client.model.ReturnDocument;
import com.mongodb.client.model.UpdateManyModel;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.result.InsertManyResult;
import com.mongodb.client.result.UpdateResult;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.bson.BsonRegularExpression;
import org.bson.BsonTimestamp;
import org.bson.BsonType;
import org.bson.Document;
import org.bson.codecs.configuration.CodecRegistries;
import org.bson.codecs.pojo.PojoCodecProvider;
import org.bson.codecs.pojo.annotations.BsonId;
import org.bson.codecs.pojo.annotations.BsonProperty;
import org.bson.conversions.Bson;
import org.bson.types.Binary;
import org.bson.types.Code;
import org.bson.types.Decimal128;
import org.bson.types.MaxKey;
import org.bson.types.MinKey;
import org.bson.types.ObjectId;

/** The synchronous Java driver, newest, as a blog uses it. */
final class SyncDriver {
    /** A comment, mapped by the driver's codec for records. */
    public record Comment(String by, String text, int votes) {}

    /** A post. */
    public record Post(
        @BsonId ObjectId id, String title, @BsonProperty("b") String body, List<String> tags, List<Comment> comments,
        long views, Date published) {}

    /** A bean, mapped by the codec for POJOs. */
    public static final class Author {
        private String id;
        private String name;
        private double rating;

        public String getId() { return id; }
        public void setId(String id) { this.id = id; }
        public String getName() { return name; }
        public void setName(String name) { this.name = name; }
        public double getRating() { return rating; }
        public void setRating(double rating) { this.rating = rating; }
    }

    private final MongoClient client;
    private final MongoDatabase db;

    SyncDriver(MongoClient client) {
        this.client = client;
        this.db = client.getDatabase("javablog");
    }

    void addTo(Tap tap) {
        tap.test("sync: the server introduces itself", this::introduction);
        tap.test("sync: records and beans come back as they were", this::mapping);
        tap.test("sync: values of every type", this::types);
        tap.test("sync: filters, sort, skip, limit, projection", this::queries);
        tap.test("sync: cursors in batches, closed early", this::cursors);
        tap.test("sync: updates report what they did", this::updates);
        tap.test("sync: arrays are changed in place", this::arrays);
        tap.test("sync: find one and update, replace, delete", this::findAndModify);
        tap.test("sync: bulks of all models", this::bulks);
        tap.test("sync: bulks that fail name the index", this::failingBulks);
        tap.test("sync: a duplicate tells its key", this::duplicates);
        tap.test("sync: aggregation with builders", this::aggregation);
        tap.test("sync: aggregation into a collection", this::aggregationOut);
        tap.test("sync: indexes", this::indexes);
        tap.test("sync: collections and databases", this::catalog);
        tap.test("sync: GridFS", this::gridFs);
        tap.test("sync: sessions and concerns", this::sessions);
        tap.test("sync: a transaction is refused as on a stand-alone server", this::transactions);
        tap.test("sync: errors carry codes, limits end operations", this::errors);
    }

    private MongoCollection<Document> fresh(String name) {
        MongoCollection<Document> c = db.getCollection(name);
        c.drop();
        return c;
    }

    /** A collection of posts 0 to n - 1. */
    private MongoCollection<Document> filled(String name, int n) {
        MongoCollection<Document> c = fresh(name);
        List<Document> posts = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            posts.add(new Document("_id", i).append("k", i % 10).append("title", "post " + i)
                .append("tags", Arrays.asList("all", "t" + i % 3))
                .append("comments", Arrays.asList(new Document("by", "ann").append("votes", i), new Document("by", "bob").append("votes", -i))));
        }
        Tap.equal(c.insertMany(posts).getInsertedIds().size(), n);
        return c;
    }

    private static List<Object> ids(Iterable<Document> documents) {
        List<Object> found = new ArrayList<>();
        documents.forEach(document -> found.add(document.get("_id")));
        return found;
    }

    private void introduction() {
        Document hello = db.runCommand(new Document("hello", 1));
        Tap.equal(hello.getBoolean("isWritablePrimary"), true);
        Tap.equal(db.runCommand(new Document("ping", 1)).get("ok"), 1.0);
        String version = db.runCommand(new Document("buildInfo", 1)).getString("version");
        Tap.equal(Integer.parseInt(version.split("\\.")[0]) >= 8, true);
        Tap.equal(client.getClusterDescription().getServerDescriptions().get(0).isOk(), true);
    }

    private void mapping() {
        fresh("posts");
        MongoCollection<Post> posts = db.getCollection("posts", Post.class);
        Post post = new Post(new ObjectId(), "First", "text", List.of("a", "b"),
            List.of(new Comment("ann", "nice", 3), new Comment("bob", "no", -1)), 1L << 40, new Date(1_700_000_000_123L));
        Tap.equal(posts.insertOne(post).getInsertedId().asObjectId().getValue(), post.id());
        Tap.equal(posts.find(eq("comments.by", "bob")).first(), post);
        Tap.equal(db.getCollection("posts").find(eq("b", "text")).first().getLong("views"), 1L << 40);
        fresh("authors");
        MongoCollection<Author> authors = db.withCodecRegistry(CodecRegistries.fromRegistries(
            com.mongodb.MongoClientSettings.getDefaultCodecRegistry(),
            CodecRegistries.fromProviders(PojoCodecProvider.builder().automatic(true).build()))).getCollection("authors", Author.class);
        Author author = new Author();
        author.setId("ann");
        author.setName("Ann");
        author.setRating(4.5);
        authors.insertOne(author);
        Tap.equal(authors.find(gt("rating", 4)).first().getName(), "Ann");
        Tap.equal(authors.find(gt("rating", 4)).first().getId(), "ann");
    }

    private void types() throws Exception {
        MongoCollection<Document> c = fresh("types");
        Document in = new Document("_id", new ObjectId())
            .append("double", 1.25).append("string", "zwölf").append("doc", new Document("a", 1)).append("array", Arrays.asList(1, "two", null))
            .append("binary", new Binary((byte) 0x80, new byte[] {0, -1})).append("bool", true).append("date", new Date(-1)).append("null", null)
            .append("code", new Code("f()")).append("int", 5).append("timestamp", new BsonTimestamp(5, 6)).append("long", 1L << 60)
            .append("decimal", Decimal128.parse("-1E+3")).append("min", new MinKey()).append("max", new MaxKey());
        c.insertOne(in);
        Tap.equal(c.find().first(), in);
        BsonType[] kinds = {BsonType.DOUBLE, BsonType.STRING, BsonType.DOCUMENT, BsonType.ARRAY, BsonType.BINARY, BsonType.BOOLEAN,
            BsonType.DATE_TIME, BsonType.NULL, BsonType.JAVASCRIPT, BsonType.INT32, BsonType.TIMESTAMP, BsonType.INT64,
            BsonType.DECIMAL128};
        List<String> names = new ArrayList<>(in.keySet()).subList(1, in.size());
        for (int i = 0; i < kinds.length; i++) {
            Tap.equal(names.get(i) + c.countDocuments(type(names.get(i), kinds[i])), names.get(i) + 1);
        }
        MongoCollection<Document> uuids = client.getDatabase("javablog").getCollection("uuids");
        uuids.drop();
        Pattern pattern = Pattern.compile("^a.c$", Pattern.CASE_INSENSITIVE);
        uuids.insertOne(new Document("_id", 1).append("pattern", pattern).append("text", "AbC"));
        Tap.equal(uuids.find(regex("text", pattern)).first().get("pattern"), new BsonRegularExpression("^a.c$", "i"));
        Tap.raises(org.bson.codecs.configuration.CodecConfigurationException.class,
            () -> uuids.insertOne(new Document("u", new UUID(1, 2))));
    }

    private void queries() {
        MongoCollection<Document> c = filled("queries", 100);
        Tap.equal(c.find(gte("k", 8)).sort(descending("k", "_id")).skip(1).limit(2).projection(fields(include("k"), excludeId()))
            .into(new ArrayList<>()), List.of(new Document("k", 9), new Document("k", 9)));
        Tap.equal(ids(c.find(and(eq("k", 3), lt("_id", 30))).sort(ascending("_id"))), List.of(3, 13, 23));
        Tap.equal(c.countDocuments(or(in("_id", 1, 2), regex("title", "^POST 9", "i"))), 13L);
        Tap.equal(c.countDocuments(elemMatch("comments", and(eq("by", "bob"), lt("votes", -90)))), 9L);
        Tap.equal(c.countDocuments(and(size("tags", 2), not(exists("missing")))), 100L);
        Tap.equal(c.estimatedDocumentCount(), 100L);
        Set<String> tags = c.distinct("tags", String.class).into(new TreeSet<>());
        Tap.equal(tags, new TreeSet<>(List.of("all", "t0", "t1", "t2")));
        Tap.equal(c.find(eq("title", "none")).first(), null);
        Tap.equal(c.find().explain().get("queryPlanner") != null, true);
    }

    private void cursors() throws Exception {
        MongoCollection<Document> c = filled("cursors", 3000);
        int seen = 0;
        for (Document document : c.find().sort(ascending("_id")).batchSize(77)) {
            Tap.equal(document.get("_id"), seen++);
        }
        Tap.equal(seen, 3000);
        long id;
        try (MongoCursor<Document> cursor = c.find().batchSize(2).cursor()) {
            cursor.next();
            Tap.equal(cursor.available(), 1);
            id = cursor.getServerCursor().getId();
        }
        MongoCommandException error = Tap.raises(
            MongoCommandException.class, () -> db.runCommand(new Document("getMore", id).append("collection", "cursors")));
        Tap.equal(error.getErrorCode(), 43);
        Tap.equal(c.aggregate(List.of(Aggregates.match(gt("k", 4)))).batchSize(100).into(new ArrayList<>()).size(), 1500);
    }

    private void updates() {
        MongoCollection<Document> c = filled("updates", 20);
        UpdateResult one = c.updateOne(eq("_id", 3), combine(inc("k", 5), set("deep.er", true), unset("title"), currentDate("at")));
        Tap.equal(List.of(one.getMatchedCount(), one.getModifiedCount()), List.of(1L, 1L));
        Document found = c.find(eq("_id", 3)).first();
        Tap.equal(found.get("k"), 8);
        Tap.equal(found.get("deep"), new Document("er", true));
        Tap.equal(found.containsKey("title"), false);
        UpdateResult none = c.updateMany(lt("_id", 5), addToSet("tags", "all"));
        Tap.equal(List.of(none.getMatchedCount(), none.getModifiedCount()), List.of(5L, 0L));
        UpdateResult upsert = c.updateOne(eq("_id", 99), setOnInsert("made", 1), new UpdateOptions().upsert(true));
        Tap.equal(upsert.getUpsertedId().asInt32().getValue(), 99);
        Tap.equal(c.replaceOne(eq("_id", 98), new Document("r", 1), new ReplaceOptions().upsert(true)).getMatchedCount(), 0L);
        Tap.equal(c.updateMany(gte("_id", 98), List.of(new Document("$set", new Document("twice", new Document("$multiply", List.of("$_id", 2))))))
            .getModifiedCount(), 2L);
        Tap.equal(c.find(eq("_id", 98)).first().get("twice"), 196);
        Tap.equal(c.deleteOne(eq("_id", 1)).getDeletedCount(), 1L);
        Tap.equal(c.deleteMany(gt("_id", 9)).getDeletedCount(), 12L);
    }

    private void arrays() {
        MongoCollection<Document> c = filled("arrays", 10);
        c.updateOne(eq("_id", 4), pushEach("tags", List.of("x", "y", "z"), new PushOptions().position(1).slice(4)));
        Tap.equal(c.find(eq("_id", 4)).first().getList("tags", String.class), List.of("all", "x", "y", "z"));
        c.updateOne(eq("_id", 4), combine(popFirst("tags"), set("n", 1)));
        c.updateOne(eq("_id", 4), pull("tags", "y"));
        Tap.equal(c.find(eq("_id", 4)).first().getList("tags", String.class), List.of("x", "z"));
        c.updateMany(new Document(), inc("comments.$[c].votes", 100), new UpdateOptions().arrayFilters(List.of(lt("c.votes", -5))));
        Tap.equal(c.countDocuments(gt("comments.votes", 50)), 4L);
        c.updateOne(and(eq("_id", 2), eq("comments.by", "bob")), set("comments.$.by", "Bob"));
        Tap.equal(c.countDocuments(eq("comments.by", "Bob")), 1L);
        c.updateMany(new Document(), set("comments.$[].seen", true));
        Tap.equal(c.countDocuments(eq("comments.seen", true)), 10L);
    }

    private void findAndModify() {
        MongoCollection<Document> c = filled("fam", 5);
        Tap.equal(c.findOneAndUpdate(gt("k", 1), inc("k", 10), new FindOneAndUpdateOptions().sort(descending("k"))).get("k"), 4);
        Tap.equal(c.findOneAndUpdate(eq("_id", 4), inc("k", 1), new FindOneAndUpdateOptions().returnDocument(ReturnDocument.AFTER)
            .projection(include("k"))), new Document("_id", 4).append("k", 15));
        Tap.equal(c.findOneAndUpdate(eq("_id", 50), set("z", 1), new FindOneAndUpdateOptions().upsert(true)), null);
        Tap.equal(c.findOneAndReplace(eq("_id", 50), new Document("r", 1)).get("z"), 1);
        Tap.equal(c.findOneAndDelete(eq("r", 1)).get("_id"), 50);
        Tap.equal(c.findOneAndDelete(eq("r", 1)), null);
    }

    private void bulks() {
        MongoCollection<Document> c = fresh("bulks");
        BulkWriteResult result = c.bulkWrite(List.of(
            new InsertOneModel<>(new Document("_id", 1).append("n", 1)),
            new InsertOneModel<>(new Document("_id", 2).append("n", 2)),
            new UpdateOneModel<>(eq("_id", 1), inc("n", 10)),
            new UpdateManyModel<>(new Document(), set("m", true)),
            new ReplaceOneModel<>(eq("_id", 3), new Document("r", 1), new ReplaceOptions().upsert(true)),
            new DeleteOneModel<>(eq("_id", 2)),
            new DeleteManyModel<>(gt("n", 100))));
        Tap.equal(List.of(result.getInsertedCount(), result.getMatchedCount(), result.getModifiedCount(), result.getUpserts().size(),
            result.getDeletedCount()), List.of(2, 3, 3, 1, 1));
        Tap.equal(result.getUpserts().get(0).getIndex(), 4);
        Tap.equal(result.getUpserts().get(0).getId().asInt32().getValue(), 3);
    }

    private void failingBulks() throws Exception {
        MongoCollection<Document> c = fresh("failing");
        List<Document> documents = new ArrayList<>();
        for (int id : new int[] {1, 2, 1, 3, 2, 4}) {
            documents.add(new Document("_id", id));
        }
        List<InsertOneModel<Document>> models = new ArrayList<>();
        documents.forEach(document -> models.add(new InsertOneModel<>(document)));
        MongoBulkWriteException error = Tap.raises(MongoBulkWriteException.class, () -> c.bulkWrite(models));
        Tap.equal(error.getWriteErrors().size(), 1);
        Tap.equal(error.getWriteErrors().get(0).getIndex(), 2);
        Tap.equal(error.getWriteErrors().get(0).getCode(), 11000);
        c.drop();
        error = Tap.raises(MongoBulkWriteException.class, () -> c.bulkWrite(models, new BulkWriteOptions().ordered(false)));
        Tap.equal(error.getWriteErrors().stream().map(e -> e.getIndex()).toList(), List.of(2, 4));
        Tap.equal(error.getWriteResult().getInsertedCount(), 4);
        Tap.equal(Tap.raises(MongoBulkWriteException.class, () -> c.insertMany(documents)).getWriteErrors().size(), 1);
        Tap.equal(c.countDocuments(), 4L);
    }

    private void duplicates() throws Exception {
        MongoCollection<Document> c = fresh("duplicates");
        c.createIndex(Indexes.ascending("email"), new IndexOptions().unique(true));
        c.insertOne(new Document("_id", 1).append("email", "a@b"));
        MongoWriteException error = Tap.raises(MongoWriteException.class, () -> c.insertOne(new Document("_id", 2).append("email", "a@b")));
        Tap.equal(error.getError().getCategory(), com.mongodb.ErrorCategory.DUPLICATE_KEY);
        Tap.equal(error.getError().getMessage(),
            "E11000 duplicate key error collection: javablog.duplicates index: email_1 dup key: { email: \"a@b\" }");
        c.insertOne(new Document("_id", 3).append("email", "c@d"));
        Tap.equal(Tap.raises(MongoWriteException.class, () -> c.updateOne(eq("_id", 3), set("email", "a@b"))).getCode(), 11000);
        Tap.equal(Tap.raises(MongoCommandException.class, () -> c.findOneAndUpdate(eq("_id", 3), set("email", "a@b"))).getErrorCode(), 11000);
    }

    private void aggregation() {
        MongoCollection<Document> c = filled("aggregation", 100);
        List<Document> found = c.aggregate(List.of(
            Aggregates.match(lt("_id", 50)), Aggregates.unwind("$tags"),
            Aggregates.group("$tags", sum("n", 1), avg("mean", "$k"), push("ids", "$_id")),
            Aggregates.sort(descending("n", "_id")), Aggregates.project(fields(include("n", "mean"))), Aggregates.limit(2)))
            .into(new ArrayList<>());
        Tap.equal(found.get(0), new Document("_id", "all").append("n", 50).append("mean", 4.5));
        Tap.equal(found.get(1).get("n"), 17);
        filled("others", 5);
        List<Document> joined = c.aggregate(List.of(
            Aggregates.match(eq("_id", 13)), Aggregates.lookup("others", "k", "_id", "other"), Aggregates.unwind("$other"),
            Aggregates.replaceRoot("$other"), Aggregates.project(include("title")))).into(new ArrayList<>());
        Tap.equal(joined, List.of(new Document("_id", 3).append("title", "post 3")));
        Document facets = c.aggregate(List.of(Aggregates.facet(
            new Facet("count", Aggregates.count("n")),
            new Facet("buckets", Aggregates.bucket("$_id", List.of(0, 10, 50, 200),
                new com.mongodb.client.model.BucketOptions().output(new BsonField("n", new Document("$sum", 1)))))))).first();
        Tap.equal(facets.getList("count", Document.class), List.of(new Document("n", 100)));
        Tap.equal(facets.getList("buckets", Document.class).stream().map(d -> d.get("n")).toList(), List.of(10, 40, 50));
        Tap.equal(c.aggregate(List.of(Aggregates.sortByCount("$k"), Aggregates.count())).first(), new Document("count", 10L).append("count", 10));
        Tap.equal(c.aggregate(List.of(Aggregates.sample(7))).into(new ArrayList<>()).size(), 7);
    }

    private void aggregationOut() {
        MongoCollection<Document> c = filled("outs", 30);
        fresh("target");
        c.aggregate(List.of(Aggregates.match(lt("_id", 10)), Aggregates.out("target"))).toCollection();
        Tap.equal(db.getCollection("target").countDocuments(), 10L);
        c.aggregate(List.of(Aggregates.match(lt("_id", 20)), Aggregates.set(new com.mongodb.client.model.Field<>("merged", true)),
            Aggregates.merge("target"))).toCollection();
        Tap.equal(db.getCollection("target").countDocuments(eq("merged", true)), 20L);
    }

    private void indexes() throws Exception {
        MongoCollection<Document> c = filled("indexes", 30);
        Tap.equal(c.createIndex(Indexes.compoundIndex(Indexes.ascending("k"), Indexes.descending("title"))), "k_1_title_-1");
        c.createIndex(Indexes.ascending("title"), new IndexOptions().unique(true).name("one title"));
        c.createIndex(Indexes.ascending("tags"), new IndexOptions().partialFilterExpression(gt("k", 5)));
        List<Document> listed = c.listIndexes().into(new ArrayList<>());
        Tap.equal(listed.stream().map(d -> d.get("name")).toList(), List.of("_id_", "k_1_title_-1", "one title", "tags_1"));
        Tap.equal(listed.get(2).getBoolean("unique"), true);
        Tap.equal(listed.get(3).get("partialFilterExpression"), new Document("k", new Document("$gt", 5)));
        Tap.equal(c.find(eq("k", 3)).hint(Indexes.compoundIndex(Indexes.ascending("k"), Indexes.descending("title"))).into(new ArrayList<>()).size(), 3);
        Tap.equal(c.find().hintString("one title").into(new ArrayList<>()).size(), 30);
        Tap.equal(Tap.raises(MongoException.class, () -> c.createIndex(Indexes.ascending("k"), new IndexOptions().unique(true))).getCode(), 11000);
        Tap.equal(Tap.raises(MongoCommandException.class, () -> c.createIndex(Indexes.ascending("x"), new IndexOptions().name("one title"))).getErrorCode(), 86);
        c.dropIndex("one title");
        c.dropIndexes();
        Tap.equal(c.listIndexes().into(new ArrayList<>()).size(), 1);
    }

    private void catalog() {
        MongoDatabase own = client.getDatabase("javacatalog");
        own.drop();
        own.createCollection("made");
        own.getCollection("filled").insertOne(new Document("a", 1));
        Tap.equal(own.listCollectionNames().into(new TreeSet<>()), new TreeSet<>(List.of("filled", "made")));
        Tap.equal(client.listDatabaseNames().into(new TreeSet<>()).contains("javacatalog"), true);
        own.getCollection("filled").renameCollection(new com.mongodb.MongoNamespace("javacatalog", "renamed"));
        Document info = own.listCollections().filter(eq("name", "renamed")).first();
        Tap.equal(info.getString("type"), "collection");
        Tap.equal(((Number) own.runCommand(new Document("collStats", "renamed")).get("count")).intValue(), 1);
        own.drop();
        Tap.equal(own.listCollectionNames().into(new ArrayList<>()).isEmpty(), true);
    }

    private void gridFs() throws Exception {
        GridFSBucket bucket = GridFSBuckets.create(client.getDatabase("javafiles"), "pictures").withChunkSizeBytes(4096);
        bucket.drop();
        byte[] data = new byte[50_000];
        for (int i = 0; i < data.length; i++) {
            data[i] = (byte) (i * 31 >> 2);
        }
        ObjectId id = bucket.uploadFromStream("cat.png", new ByteArrayInputStream(data), new GridFSUploadOptions().metadata(new Document("kind", "cat")));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        bucket.downloadToStream(id, out);
        Tap.equal(Arrays.equals(out.toByteArray(), data), true);
        try (GridFSDownloadStream stream = bucket.openDownloadStream("cat.png")) {
            Tap.equal(stream.skip(10_000), 10_000L);
            Tap.equal(Arrays.equals(stream.readNBytes(9000), Arrays.copyOfRange(data, 10_000, 19_000)), true);
        }
        try (GridFSUploadStream stream = bucket.openUploadStream("cat.png")) {
            stream.write("newer".getBytes());
        }
        out.reset();
        bucket.downloadToStream("cat.png", out);
        Tap.equal(out.toString(), "newer");
        GridFSFile file = bucket.find(eq("metadata.kind", "cat")).first();
        Tap.equal(List.of(file.getLength(), file.getChunkSize(), file.getFilename()), List.of(50_000L, 4096, "cat.png"));
        bucket.rename(id, "dog.png");
        bucket.delete(id);
        Tap.raises(MongoGridFSException.class, () -> bucket.delete(id));
        Tap.equal(client.getDatabase("javafiles").getCollection("pictures.chunks").countDocuments(), 1L);
        bucket.drop();
    }

    private void sessions() {
        try (ClientSession session = client.startSession()) {
            MongoCollection<Document> c = fresh("sessions").withReadConcern(ReadConcern.MAJORITY).withReadPreference(ReadPreference.nearest());
            c.insertOne(session, new Document("_id", 1));
            Tap.equal(c.countDocuments(session, eq("_id", 1)), 1L);
            InsertManyResult many = c.withWriteConcern(WriteConcern.JOURNALED).insertMany(session, List.of(new Document("_id", 2), new Document("_id", 3)));
            Tap.equal(many.wasAcknowledged(), true);
            Tap.equal(c.withWriteConcern(WriteConcern.UNACKNOWLEDGED).insertOne(new Document("_id", 4)).wasAcknowledged(), false);
        }
    }

    private void transactions() throws Exception {
        MongoCollection<Document> c = fresh("transactions");
        try (ClientSession session = client.startSession()) {
            session.startTransaction();
            c.insertOne(session, new Document("_id", 1));
            Tap.equal(c.countDocuments(), 0L);
            session.abortTransaction();
            String done = session.withTransaction(() -> {
                c.insertOne(session, new Document("_id", 2));
                c.updateOne(session, eq("_id", 2), inc("n", 1));
                return "done";
            });
            Tap.equal(done, "done");
        }
        Tap.equal(c.find().first().get("n"), 1);
        Tap.equal(c.countDocuments(), 1L);
    }

    private void errors() throws Exception {
        MongoCollection<Document> c = filled("errors", 300);
        Tap.equal(Tap.raises(MongoCommandException.class, () -> db.runCommand(new Document("nosuch", 1))).getErrorCodeName(), "CommandNotFound");
        Tap.equal(Tap.raises(MongoQueryException.class, () -> c.find(new Document("k", new Document("$nosuch", 1))).first()).getCode(), 2);
        Tap.equal(Tap.raises(MongoWriteException.class, () -> c.updateOne(eq("_id", 1), inc("title", 1))).getCode(), 14);
        Tap.equal(Tap.raises(MongoWriteException.class, () -> c.updateOne(eq("_id", 1), set("_id", 7))).getCode(), 66);
        Bson join = new Document("$lookup", new Document("from", "errors").append("let", new Document("k", "$k")).append("as", "all")
            .append("pipeline", List.of(Document.parse("{$match: {$expr: {$gte: [{$add: ['$k', '$$k']}, 0]}}}"))));
        Tap.raises(MongoExecutionTimeoutException.class,
            () -> c.aggregate(List.of(join, Aggregates.unwind("$all"), join, Aggregates.count())).maxTime(20, TimeUnit.MILLISECONDS).first());
        Tap.raises(IllegalArgumentException.class, () -> c.updateOne(eq("_id", 1), new Document("no", "operator")));
    }
}
