import static org.springframework.data.mongodb.core.aggregation.Aggregation.group;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.match;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.newAggregation;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.project;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.sort;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.unwind;
import static org.springframework.data.mongodb.core.query.Criteria.where;
import static org.springframework.data.mongodb.core.query.Query.query;

import com.mongodb.client.MongoClient;
import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Stream;
import org.bson.Document;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.FilterType;
import org.springframework.dao.DuplicateKeyException;
import org.springframework.dao.IncorrectResultSizeDataAccessException;
import org.springframework.dao.OptimisticLockingFailureException;
import org.springframework.data.annotation.CreatedBy;
import org.springframework.data.annotation.CreatedDate;
import org.springframework.data.annotation.Id;
import org.springframework.data.annotation.LastModifiedDate;
import org.springframework.data.annotation.Version;
import org.springframework.data.domain.AuditorAware;
import org.springframework.data.domain.Example;
import org.springframework.data.domain.Page;
import org.springframework.data.domain.PageRequest;
import org.springframework.data.domain.Slice;
import org.springframework.data.domain.Sort;
import org.springframework.data.geo.Circle;
import org.springframework.data.geo.Distance;
import org.springframework.data.geo.GeoResults;
import org.springframework.data.geo.Metrics;
import org.springframework.data.mongodb.config.AbstractMongoClientConfiguration;
import org.springframework.data.mongodb.config.EnableMongoAuditing;
import org.springframework.data.mongodb.core.BulkOperations;
import org.springframework.data.mongodb.core.FindAndModifyOptions;
import org.springframework.data.mongodb.core.MongoTemplate;
import org.springframework.data.mongodb.core.index.CompoundIndex;
import org.springframework.data.mongodb.core.geo.GeoJsonPoint;
import org.springframework.data.mongodb.core.index.GeoSpatialIndexType;
import org.springframework.data.mongodb.core.index.GeoSpatialIndexed;
import org.springframework.data.mongodb.core.index.Index;
import org.springframework.data.mongodb.core.index.Indexed;
import org.springframework.data.mongodb.core.index.IndexInfo;
import org.springframework.data.mongodb.core.mapping.DBRef;
import org.springframework.data.mongodb.core.mapping.Field;
import org.springframework.data.mongodb.core.query.Criteria;
import org.springframework.data.mongodb.core.query.NearQuery;
import org.springframework.data.mongodb.core.query.Query;
import org.springframework.data.mongodb.core.query.Update;
import org.springframework.data.mongodb.repository.Aggregation;
import org.springframework.data.mongodb.repository.MongoRepository;
import org.springframework.data.mongodb.repository.config.EnableMongoRepositories;

/** Spring Data MongoDB, newest, as a shop uses it: a template, repositories, auditing and locking. */
public final class SpringShop {
    /** A customer. */
    @org.springframework.data.mongodb.core.mapping.Document("customers")
    public static class Customer {
        @Id public String id;
        @Indexed(unique = true) public String email;
        public String name;
        public int age;
        public Address address;

        public Customer() {}

        Customer(String email, String name, int age, String city) {
            this.email = email;
            this.name = name;
            this.age = age;
            this.address = new Address(city, "Main street");
        }
    }

    /** An address. */
    public record Address(@Indexed String city, String street) {}

    /** A part of an order. */
    public record Line(String sku, int count, BigDecimal price) {}

    /** An order. */
    @org.springframework.data.mongodb.core.mapping.Document("orders")
    @CompoundIndex(name = "customer_status", def = "{'customer': 1, 'status': -1}")
    public static class Order {
        @Id public String id;
        @Version public Long version;
        @CreatedDate public Instant created;
        @LastModifiedDate public Instant changed;
        @CreatedBy public String by;
        @DBRef public Customer customer;
        public Status status = Status.NEW;
        @Field("l") public List<Line> lines = new ArrayList<>();
        public LocalDate due;
        public Map<String, String> notes;
    }

    /** The state of an order. */
    public enum Status { NEW, PAID, SENT }

    /** A row of a report. */
    public record Sales(String id, int count, long orders) {}

    /** A part of a customer. */
    public interface NameOnly {
        String getName();
    }

    /** A place with its location. */
    @org.springframework.data.mongodb.core.mapping.Document("places")
    public record Place(@Id String name, @GeoSpatialIndexed(type = GeoSpatialIndexType.GEO_2DSPHERE) GeoJsonPoint at) {}

    /** Customers; Spring Data derives the queries from the methods' names. */
    public interface Customers extends MongoRepository<Customer, String> {
        Optional<Customer> findByEmail(String email);
        List<Customer> findByAddressCityOrderByAgeDesc(String city);
        List<Customer> findByAgeBetweenAndNameStartingWith(int low, int high, String start);
        Page<Customer> findByAgeGreaterThanEqual(int age, PageRequest page);
        Slice<Customer> findSliceByAgeLessThan(int age, PageRequest page);
        long countByAddressCityIn(List<String> cities);
        boolean existsByNameIgnoreCase(String name);
        List<Customer> findTop3ByOrderByAgeAsc();
        long deleteByAgeLessThan(int age);
        Stream<Customer> streamByAgeNot(int age);
        List<NameOnly> findNamesByAddressCity(String city);
        Customer findOneByAddressCity(String city);

        @org.springframework.data.mongodb.repository.Query("{'age': {$gte: ?0}, 'address.city': ?1}")
        List<Customer> grownIn(int age, String city);

        @org.springframework.data.mongodb.repository.Query(value = "{'address.city': ?0}", fields = "{'name': 1}", sort = "{'name': -1}")
        List<Customer> namesIn(String city);

        @org.springframework.data.mongodb.repository.Update("{$inc: {'age': ?1}}")
        long findAndIncrementAgeByName(String name, int years);

        @Aggregation({"{$group: {_id: '$address.city', count: {$sum: 1}, orders: {$sum: '$age'}}}", "{$sort: {count: -1, _id: 1}}"})
        List<Sales> perCity();
    }

    /** Orders. */
    public interface Orders extends MongoRepository<Order, String> {
        List<Order> findByStatusAndDueBefore(Status status, LocalDate day);
        List<Order> findByCustomer(Customer customer);
    }

    /** The beans that Spring Boot would configure. */
    @Configuration
    @EnableMongoAuditing
    @EnableMongoRepositories(
        basePackageClasses = SpringShop.class, considerNestedRepositories = true,
        includeFilters = @ComponentScan.Filter(type = FilterType.ASSIGNABLE_TYPE, classes = {Customers.class, Orders.class}))
    public static class Config extends AbstractMongoClientConfiguration {
        static MongoClient client;

        @Override public MongoClient mongoClient() {
            return client;
        }

        @Override protected String getDatabaseName() {
            return "javashop";
        }

        @Override protected boolean autoIndexCreation() {
            return true;
        }

        @Override protected Set<Class<?>> getInitialEntitySet() {
            return Set.of(Customer.class, Order.class, Place.class);
        }

        @Bean AuditorAware<String> auditor() {
            return () -> Optional.of("the shop");
        }
    }

    private static MongoTemplate template;
    private static Customers customers;
    private static Orders orders;

    private SpringShop() {}

    static void addTo(Tap tap, MongoClient client) {
        tap.test("spring: the context starts", () -> {
            client.getDatabase("javashop").drop();
            Config.client = client;
            AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext(Config.class);
            template = context.getBean(MongoTemplate.class);
            customers = context.getBean(Customers.class);
            orders = context.getBean(Orders.class);
        });
        tap.test("spring: saves, and makes the annotated indexes", SpringShop::saves);
        tap.test("spring: a duplicate is a DuplicateKeyException", SpringShop::duplicates);
        tap.test("spring: derived queries", SpringShop::derived);
        tap.test("spring: pages, slices, streams, projections", SpringShop::pages);
        tap.test("spring: queries and aggregations of annotations", SpringShop::annotated);
        tap.test("spring: query by example", SpringShop::examples);
        tap.test("spring: references, enums, dates, decimals", SpringShop::references);
        tap.test("spring: optimistic locking and auditing", SpringShop::locking);
        tap.test("spring: template queries with criteria", SpringShop::criteria);
        tap.test("spring: template updates", SpringShop::updates);
        tap.test("spring: find and modify, upsert, replace, remove", SpringShop::modify);
        tap.test("spring: aggregation with a typed result", SpringShop::aggregation);
        tap.test("spring: bulk operations", SpringShop::bulks);
        tap.test("spring: index operations", SpringShop::indexes);
        tap.test("spring: places with a geospatial index", SpringShop::places);
        tap.test("spring: deletes", SpringShop::deletes);
    }

    private static void saves() {
        List<Customer> all = new ArrayList<>();
        String[] cities = {"Rome", "Oslo", "Bern"};
        for (int i = 0; i < 30; i++) {
            all.add(new Customer("c" + i + "@shop", "Name " + (char) ('A' + i % 26), 15 + i, cities[i % 3]));
        }
        customers.saveAll(all);
        Tap.equal(customers.count(), 30L);
        Tap.equal(all.get(0).id != null, true);
        Customer again = customers.findById(all.get(7).id).orElseThrow();
        Tap.equal(List.of(again.email, again.age, again.address), List.of("c7@shop", 22, new Address("Oslo", "Main street")));
        Tap.equal(template.indexOps(Customer.class).getIndexInfo().stream().map(IndexInfo::getName).sorted().toList(),
            List.of("_id_", "address.city", "email"));
        Document stored = template.getCollection("customers").find(new Document("email", "c7@shop")).first();
        Tap.equal(stored.getString("_class"), "SpringShop$Customer");
    }

    private static void duplicates() throws Exception {
        DuplicateKeyException error = Tap.raises(DuplicateKeyException.class, () -> customers.save(new Customer("c1@shop", "Other", 9, "Rome")));
        Tap.equal(error.getMessage().contains("index: email dup key: { email: \"c1@shop\" }"), true);
        Tap.raises(DuplicateKeyException.class, () -> template.updateFirst(
            query(where("email").is("c2@shop")), new Update().set("email", "c1@shop"), Customer.class));
        Tap.equal(customers.count(), 30L);
    }

    private static void derived() throws Exception {
        Tap.equal(customers.findByEmail("c3@shop").orElseThrow().age, 18);
        Tap.equal(customers.findByEmail("nobody@shop").isPresent(), false);
        Tap.equal(customers.findByAddressCityOrderByAgeDesc("Oslo").stream().map(c -> c.age).limit(3).toList(), List.of(43, 40, 37));
        Tap.equal(customers.findByAgeBetweenAndNameStartingWith(15, 20, "Name").size(), 4);
        Tap.equal(customers.countByAddressCityIn(List.of("Rome", "Bern")), 20L);
        Tap.equal(customers.existsByNameIgnoreCase("nAmE b"), true);
        Tap.equal(customers.existsByNameIgnoreCase("me b"), false);
        Tap.equal(customers.findTop3ByOrderByAgeAsc().stream().map(c -> c.age).toList(), List.of(15, 16, 17));
        Tap.raises(IncorrectResultSizeDataAccessException.class, () -> customers.findOneByAddressCity("Rome"));
    }

    private static void pages() {
        Page<Customer> page = customers.findByAgeGreaterThanEqual(20, PageRequest.of(2, 10, Sort.by("age")));
        Tap.equal(List.of(page.getTotalElements(), page.getTotalPages(), page.getNumberOfElements()), List.of(25L, 3, 5));
        Tap.equal(page.getContent().get(0).age, 40);
        Slice<Customer> slice = customers.findSliceByAgeLessThan(40, PageRequest.of(0, 10));
        Tap.equal(slice.hasNext(), true);
        try (Stream<Customer> stream = customers.streamByAgeNot(20)) {
            Tap.equal(stream.count(), 29L);
        }
        Tap.equal(customers.findNamesByAddressCity("Bern").get(0).getName(), "Name C");
        Tap.equal(customers.findAll(Sort.by(Sort.Direction.DESC, "age")).get(0).age, 44);
        Tap.equal(customers.findAll(PageRequest.of(1, 7)).getTotalPages(), 5);
    }

    private static void annotated() {
        Tap.equal(customers.grownIn(40, "Rome").size(), 1);
        List<Customer> names = customers.namesIn("Rome");
        Tap.equal(names.size(), 10);
        Tap.equal(names.get(0).email, null);
        Tap.equal(customers.findAndIncrementAgeByName("Name B", 1), 2L);
        Tap.equal(customers.perCity(), List.of(new Sales("Bern", 10, 305), new Sales("Oslo", 10, 296), new Sales("Rome", 10, 286)));
    }

    private static void examples() {
        Customer probe = new Customer();
        probe.name = "Name D";
        Example<Customer> example = Example.of(probe, org.springframework.data.domain.ExampleMatcher.matching().withIgnorePaths("age"));
        Tap.equal(customers.count(example), 2L);
        Tap.equal(customers.exists(example), true);
        Example<Customer> contains = Example.of(probe, org.springframework.data.domain.ExampleMatcher.matching().withIgnorePaths("age")
            .withIgnoreCase().withStringMatcher(org.springframework.data.domain.ExampleMatcher.StringMatcher.ENDING));
        Tap.equal(customers.findAll(contains).size(), 2);
    }

    private static Order order(Customer customer, int lines) {
        Order order = new Order();
        order.customer = customer;
        order.due = LocalDate.of(2024, 2, 29);
        order.notes = Map.of("gift", "yes");
        for (int i = 0; i < lines; i++) {
            order.lines.add(new Line("s" + i, i + 1, new BigDecimal("9.90")));
        }
        return order;
    }

    private static void references() {
        Customer customer = customers.findByEmail("c5@shop").orElseThrow();
        Order saved = orders.save(order(customer, 3));
        Order found = orders.findById(saved.id).orElseThrow();
        Tap.equal(found.customer.email, "c5@shop");
        Tap.equal(List.of(found.status, found.due, found.notes), List.of(Status.NEW, LocalDate.of(2024, 2, 29), Map.of("gift", "yes")));
        Tap.equal(found.lines.get(2), new Line("s2", 3, new BigDecimal("9.90")));
        Tap.equal(orders.findByCustomer(customer).size(), 1);
        Tap.equal(orders.findByStatusAndDueBefore(Status.NEW, LocalDate.of(2024, 3, 1)).size(), 1);
        Tap.equal(orders.findByStatusAndDueBefore(Status.PAID, LocalDate.of(2024, 3, 1)).size(), 0);
    }

    private static void locking() throws Exception {
        Order first = orders.save(order(customers.findByEmail("c6@shop").orElseThrow(), 1));
        Tap.equal(List.of(first.version, first.by), List.of(0L, "the shop"));
        Tap.equal(first.created != null && first.changed != null, true);
        Order second = orders.findById(first.id).orElseThrow();
        Order third = orders.findById(first.id).orElseThrow();
        first.status = Status.PAID;
        orders.save(first);
        Tap.equal(first.version, 1L);
        second.status = Status.SENT;
        Tap.raises(OptimisticLockingFailureException.class, () -> orders.save(second));
        Tap.raises(OptimisticLockingFailureException.class, () -> orders.delete(third));
        Order stored = orders.findById(first.id).orElseThrow();
        Tap.equal(stored.status, Status.PAID);
        Tap.equal(stored.changed.isBefore(stored.created), false);
    }

    private static void criteria() {
        Query young = query(where("age").lt(20).and("address.city").ne("Rome")).with(Sort.by("age"));
        Tap.equal(template.find(young, Customer.class).stream().map(c -> c.age).toList(), List.of(17, 17, 19));
        Tap.equal(template.count(query(new Criteria().orOperator(where("age").is(30), where("name").regex("^name z$", "i"))), Customer.class), 2L);
        Tap.equal(template.findDistinct(new Query(), "address.city", Customer.class, String.class).stream().sorted().toList(), List.of("Bern", "Oslo", "Rome"));
        Tap.equal(template.exists(query(where("lines").elemMatch(where("sku").is("s2").and("count").gt(2))), Order.class), true);
        Tap.equal(template.findOne(query(where("age").mod(11, 0)).with(Sort.by("age")), Customer.class).age, 22);
        Query fields = query(where("email").is("c9@shop"));
        fields.fields().include("name").exclude("_id");
        Tap.equal(template.findOne(fields, Document.class, "customers").keySet().contains("email"), false);
        try (Stream<Customer> stream = template.stream(new Query().cursorBatchSize(4), Customer.class)) {
            Tap.equal(stream.mapToInt(c -> 1).sum(), 30);
        }
    }

    private static void updates() {
        Tap.equal(template.updateMulti(query(where("address.city").is("Bern")), new Update().inc("age", 1).set("vip", true), Customer.class)
            .getModifiedCount(), 10L);
        Tap.equal(template.updateFirst(query(where("email").is("c5@shop")), new Update().push("tags").atPosition(0).each("a", "b"), Customer.class)
            .getModifiedCount(), 1L);
        template.updateFirst(query(where("email").is("c5@shop")), new Update().addToSet("tags", "b").currentDate("seen").rename("vip", "wasVip"), Customer.class);
        Document stored = template.getCollection("customers").find(new Document("email", "c5@shop")).first();
        Tap.equal(stored.getList("tags", String.class), List.of("a", "b"));
        Tap.equal(stored.containsKey("vip"), false);
        Tap.equal(template.updateMulti(query(where("status").is(Status.NEW)), new Update().set("lines.$[l].count", 50)
            .filterArray(where("l.sku").is("s1")), Order.class).getMatchedCount(), 1L);
        Tap.equal(template.count(query(where("lines.count").is(50)), Order.class), 1L);
        Tap.equal(template.update(Customer.class).matching(where("email").is("c0@shop"))
            .apply(org.springframework.data.mongodb.core.aggregation.AggregationUpdate.update().set("name").toValue("$email")).first().getModifiedCount(), 1L);
        Tap.equal(customers.findByEmail("c0@shop").orElseThrow().name, "c0@shop");
    }

    private static void modify() {
        Customer changed = template.findAndModify(query(where("email").is("c1@shop")), new Update().inc("age", 50),
            FindAndModifyOptions.options().returnNew(true), Customer.class);
        Tap.equal(changed.age, 67);
        Tap.equal(template.upsert(query(where("email").is("up@shop")), new Update().set("name", "Up").setOnInsert("age", 1), Customer.class)
            .getUpsertedId() != null, true);
        Customer replacement = new Customer("up@shop", "Replaced", 77, "Rome");
        Tap.equal(template.findAndReplace(query(where("email").is("up@shop")), replacement).name, "Up");
        Tap.equal(template.findAndRemove(query(where("email").is("up@shop")), Customer.class).age, 77);
        Tap.equal(template.remove(query(where("email").is("up@shop")), Customer.class).getDeletedCount(), 0L);
    }

    private static void aggregation() {
        orders.save(order(customers.findByEmail("c8@shop").orElseThrow(), 2));
        List<Sales> sales = template.aggregate(newAggregation(
            match(where("status").is(Status.NEW)), unwind("lines"),
            group("lines.sku").sum("lines.count").as("count").count().as("orders"),
            sort(Sort.Direction.ASC, "_id"), project("count", "orders")), Order.class, Sales.class).getMappedResults();
        Tap.equal(sales, List.of(new Sales("s0", 2, 2), new Sales("s1", 52, 2), new Sales("s2", 3, 1)));
        Document looked = template.aggregate(newAggregation(
            match(where("email").is("c8@shop")),
            org.springframework.data.mongodb.core.aggregation.Aggregation.lookup("orders", "_id", "customer.$id", "orders")),
            Customer.class, Document.class).getUniqueMappedResult();
        Tap.equal(looked.getList("orders", Document.class).size(), 1);
    }

    private static void bulks() {
        BulkOperations bulk = template.bulkOps(BulkOperations.BulkMode.UNORDERED, Customer.class);
        bulk.insert(new Customer("b1@shop", "Bulk", 20, "Rome"));
        bulk.insert(new Customer("b2@shop", "Bulk", 21, "Rome"));
        bulk.updateMulti(query(where("name").is("Name A")), new Update().set("name", "Alpha"));
        bulk.upsert(query(where("email").is("b3@shop")), new Update().set("name", "Bulk"));
        bulk.remove(query(where("email").is("c29@shop")));
        com.mongodb.bulk.BulkWriteResult result = bulk.execute();
        Tap.equal(List.of(result.getInsertedCount(), result.getUpserts().size(), result.getDeletedCount()), List.of(2, 1, 1));
        Tap.equal(template.count(query(where("name").is("Bulk")), Customer.class), 3L);
    }

    private static void indexes() {
        template.indexOps(Customer.class).createIndex(new Index().on("age", Sort.Direction.DESC).on("name", Sort.Direction.ASC).named("by age"));
        IndexInfo info = template.indexOps(Customer.class).getIndexInfo().stream().filter(i -> i.getName().equals("by age")).findFirst().orElseThrow();
        Tap.equal(info.getIndexFields().size(), 2);
        Tap.equal(template.find(new Query(where("age").gt(0)).withHint("by age"), Customer.class).isEmpty(), false);
        template.indexOps(Customer.class).dropIndex("by age");
        Tap.equal(template.indexOps(Order.class).getIndexInfo().stream().anyMatch(i -> i.getName().equals("customer_status")), true);
    }

    private static void places() {
        template.save(new Place("Rome", new GeoJsonPoint(12.5, 41.9)));
        template.save(new Place("Oslo", new GeoJsonPoint(10.75, 59.9)));
        template.save(new Place("Bern", new GeoJsonPoint(7.45, 46.95)));
        GeoJsonPoint milan = new GeoJsonPoint(9.19, 45.46);
        Tap.equal(template.find(query(where("at").nearSphere(milan)), Place.class).stream().map(Place::name).toList(), List.of("Bern", "Rome", "Oslo"));
        Tap.equal(template.find(query(where("at").withinSphere(new Circle(milan, new Distance(600, Metrics.KILOMETERS)))), Place.class).size(), 2);
        GeoResults<Place> near = template.geoNear(NearQuery.near(milan, Metrics.KILOMETERS).spherical(true).maxDistance(300), Place.class);
        Tap.equal(near.getContent().size(), 1);
        Tap.equal(Math.round(near.getContent().get(0).getDistance().getValue() / 10), 21L);
    }

    private static void deletes() {
        Tap.equal(customers.deleteByAgeLessThan(18), 1L);
        customers.deleteById(customers.findByEmail("c5@shop").orElseThrow().id);
        Tap.equal(customers.findByEmail("c5@shop").isPresent(), false);
        orders.deleteAll();
        Tap.equal(orders.count(), 0L);
        template.dropCollection(Customer.class);
        Tap.equal(template.collectionExists(Customer.class), false);
    }
}
