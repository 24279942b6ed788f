import static org.springframework.data.mongodb.core.query.Criteria.where;
import static org.springframework.data.mongodb.core.query.Query.query;

import com.mongodb.MongoException;
import com.mongodb.client.MongoClient;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.bson.Document;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.FilterType;
import org.springframework.dao.DuplicateKeyException;
import org.springframework.dao.OptimisticLockingFailureException;
import org.springframework.data.annotation.Id;
import org.springframework.data.annotation.Version;
import org.springframework.data.mongodb.MongoDatabaseFactory;
import org.springframework.data.mongodb.MongoTransactionManager;
import org.springframework.data.mongodb.config.AbstractMongoClientConfiguration;
import org.springframework.data.mongodb.core.MongoTemplate;
import org.springframework.data.mongodb.core.index.Indexed;
import org.springframework.data.mongodb.core.query.Update;
import org.springframework.data.mongodb.repository.MongoRepository;
import org.springframework.data.mongodb.repository.config.EnableMongoRepositories;
import org.springframework.transaction.annotation.EnableTransactionManagement;
import org.springframework.transaction.annotation.Propagation;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.transaction.support.TransactionTemplate;

/** Spring Data MongoDB, newest, with {@code @Transactional} services, as a bank uses it. */
public final class SpringBank {
    /** An account. */
    @org.springframework.data.mongodb.core.mapping.Document("accounts")
    public static class Account {
        @Id public String owner;
        public long balance;
        @Indexed(unique = true) public String iban;
        @Version public Long version;

        public Account() {}

        Account(String owner, long balance) {
            this.owner = owner;
            this.balance = balance;
            this.iban = "IBAN " + owner;
        }
    }

    /** A line of the books. */
    @org.springframework.data.mongodb.core.mapping.Document("bookings")
    public record Booking(@Id String id, @Indexed String from, @Indexed String to, long amount) {}

    /** Accounts. */
    public interface Accounts extends MongoRepository<Account, String> {}

    /** Bookings. */
    public interface Bookings extends MongoRepository<Booking, String> {
        List<Booking> findByFromOrTo(String from, String to);
    }

    /** Not enough money. */
    public static class Overdrawn extends RuntimeException {}

    /** An error after which the books are kept. */
    public static class Warning extends RuntimeException {}

    /** What runs in a transaction. */
    public static class Bank {
        private final Accounts accounts;
        private final Bookings bookings;
        private final MongoTemplate template;

        Bank(Accounts accounts, Bookings bookings, MongoTemplate template) {
            this.accounts = accounts;
            this.bookings = bookings;
            this.template = template;
        }

        @Transactional(noRollbackFor = Warning.class)
        public long transfer(String from, String to, long amount) {
            bookings.insert(new Booking(null, from, to, amount));
            template.updateFirst(query(where("_id").is(to)), new Update().inc("balance", amount), Account.class);
            Account source = accounts.findById(from).orElseThrow();
            source.balance -= amount;
            if (source.balance < 0) {
                throw new Overdrawn();
            }
            accounts.save(source);
            if (source.balance == 13) {
                throw new Warning();
            }
            return bookings.findByFromOrTo(from, from).size();
        }

        @Transactional
        public void open(String owner, String iban) {
            template.updateMulti(new org.springframework.data.mongodb.core.query.Query(), new Update().inc("balance", 1000), Account.class);
            Account account = new Account(owner, 0);
            account.iban = iban;
            accounts.insert(account);
        }

        @Transactional(readOnly = true)
        public List<Long> lookTwice(Runnable between) {
            long before = accounts.findById("ada").orElseThrow().balance;
            between.run();
            return List.of(before, accounts.findById("ada").orElseThrow().balance);
        }

        @Transactional(propagation = Propagation.REQUIRES_NEW)
        public void book(Booking booking) {
            bookings.insert(booking);
        }

        @Transactional(label = "mongo:readConcern=snapshot")
        public long total() {
            return accounts.findAll().stream().mapToLong(account -> account.balance).sum();
        }
    }

    /** The beans. */
    @Configuration
    @EnableTransactionManagement(proxyTargetClass = true)
    @EnableMongoRepositories(
        basePackageClasses = SpringBank.class, considerNestedRepositories = true,
        includeFilters = @ComponentScan.Filter(type = FilterType.ASSIGNABLE_TYPE, classes = {Accounts.class, Bookings.class}))
    public static class Config extends AbstractMongoClientConfiguration {
        static MongoClient client;

        @Override public MongoClient mongoClient() {
            return client;
        }

        @Override protected String getDatabaseName() {
            return "springbank";
        }

        @Override protected boolean autoIndexCreation() {
            return true;
        }

        @Bean MongoTransactionManager transactionManager(MongoDatabaseFactory factory) {
            return new MongoTransactionManager(factory);
        }

        @Bean Bank bank(Accounts accounts, Bookings bookings, MongoTemplate template) {
            return new Bank(accounts, bookings, template);
        }
    }

    private static Accounts accounts;
    private static Bookings bookings;
    private static MongoTemplate template;
    private static Bank bank;
    private static TransactionTemplate transactions;

    private SpringBank() {}

    static void addTo(Tap tap, MongoClient client) {
        tap.test("the context starts with a transaction manager", () -> {
            client.getDatabase("springbank").drop();
            Config.client = client;
            AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext(Config.class);
            accounts = context.getBean(Accounts.class);
            bookings = context.getBean(Bookings.class);
            template = context.getBean(MongoTemplate.class);
            bank = context.getBean(Bank.class);
            transactions = new TransactionTemplate(context.getBean(MongoTransactionManager.class));
            accounts.insert(List.of(new Account("ada", 100), new Account("bob", 100), new Account("eve", 100)));
        });
        tap.test("a @Transactional method commits", SpringBank::commits);
        tap.test("an exception rolls everything back", SpringBank::rollsBack);
        tap.test("an exception of noRollbackFor commits", SpringBank::keeps);
        tap.test("a duplicate rolls back what came before it", SpringBank::duplicate);
        tap.test("a transaction reads its snapshot", SpringBank::snapshot);
        tap.test("TransactionTemplate: own writes, setRollbackOnly, several collections", SpringBank::byTemplate);
        tap.test("REQUIRES_NEW commits by itself", SpringBank::nested);
        tap.test("optimistic locking in a transaction", SpringBank::locking);
        tap.test("a write conflict is a transient error, and trying again works", SpringBank::conflict);
        tap.test("many at a time keep the total", SpringBank::many);
    }

    private static long balance(String owner) {
        return accounts.findById(owner).orElseThrow().balance;
    }

    private static void commits() {
        Tap.equal(bank.transfer("ada", "bob", 30), 1L);
        Tap.equal(List.of(balance("ada"), balance("bob"), bookings.count()), List.of(70L, 130L, 1L));
    }

    private static void rollsBack() throws Exception {
        Tap.raises(Overdrawn.class, () -> bank.transfer("ada", "bob", 71));
        Tap.equal(List.of(balance("ada"), balance("bob"), bookings.count()), List.of(70L, 130L, 1L));
    }

    private static void keeps() throws Exception {
        Tap.raises(Warning.class, () -> bank.transfer("ada", "eve", 57));
        Tap.equal(List.of(balance("ada"), balance("eve"), bookings.count()), List.of(13L, 157L, 2L));
    }

    private static void duplicate() throws Exception {
        Tap.raises(DuplicateKeyException.class, () -> bank.open("mallory", "IBAN bob"));
        Tap.equal(List.of(balance("bob"), accounts.count()), List.of(130L, 3L));
        bank.open("zoe", "IBAN zoe");
        Tap.equal(List.of(balance("bob"), accounts.count()), List.of(1130L, 4L));
    }

    private static void snapshot() throws Exception {
        ExecutorService other = Executors.newSingleThreadExecutor();
        try {
            List<Long> seen = bank.lookTwice(() -> {
                try {
                    other.submit(() -> template.updateFirst(
                        query(where("_id").is("ada")), new Update().inc("balance", 7), Account.class)).get();
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            });
            Tap.equal(seen, List.of(1013L, 1013L));
            Tap.equal(balance("ada"), 1020L);
        } finally {
            other.shutdown();
        }
    }

    private static void byTemplate() {
        Long counted = transactions.execute(status -> {
            template.insert(new Booking("b1", "ada", "bob", 1));
            template.insert(new Document("_id", 1).append("text", "in a new collection"), "notes");
            status.setRollbackOnly();
            return template.count(query(where("from").is("ada").and("amount").is(1)), Booking.class);
        });
        Tap.equal(counted, 1L);
        Tap.equal(bookings.existsById("b1"), false);
        Tap.equal(template.collectionExists("notes"), false);
        transactions.executeWithoutResult(status -> {
            template.insert(new Document("_id", 1).append("text", "in a new collection"), "notes");
            Document found = template.findById(1, Document.class, "notes");
            Tap.equal(found.getString("text"), "in a new collection");
            template.remove(query(where("_id").is(1)), "notes");
            template.insert(new Document("_id", 2), "notes");
        });
        Tap.equal(template.findAll(Document.class, "notes"), List.of(new Document("_id", 2)));
    }

    private static void nested() throws Exception {
        Tap.raises(Overdrawn.class, () -> transactions.executeWithoutResult(status -> {
            bookings.insert(new Booking("outer", "bob", "eve", 1));
            bank.book(new Booking("inner", "bob", "eve", 2));
            throw new Overdrawn();
        }));
        Tap.equal(List.of(bookings.existsById("outer"), bookings.existsById("inner")), List.of(false, true));
        bookings.deleteById("inner");
    }

    private static void locking() throws Exception {
        Account old = accounts.findById("eve").orElseThrow();
        accounts.save(accounts.findById("eve").orElseThrow());
        Tap.raises(OptimisticLockingFailureException.class, () -> transactions.executeWithoutResult(status -> {
            bookings.insert(new Booking("stale", "eve", "bob", 1));
            accounts.save(old);
        }));
        Tap.equal(bookings.existsById("stale"), false);
    }

    private static void conflict() throws Exception {
        ExecutorService other = Executors.newSingleThreadExecutor();
        AtomicInteger tries = new AtomicInteger();
        try {
            Runnable work = () -> transactions.executeWithoutResult(status -> {
                long seen = balance("zoe");
                if (tries.incrementAndGet() == 1) {
                    try {
                        other.submit(() -> template.updateFirst(
                            query(where("_id").is("zoe")), new Update().inc("balance", 5), Account.class)).get();
                    } catch (Exception error) {
                        throw new IllegalStateException(error);
                    }
                }
                template.updateFirst(query(where("_id").is("zoe")), new Update().set("balance", seen + 1), Account.class);
            });
            RuntimeException error = Tap.raises(RuntimeException.class, work::run);
            Tap.equal(isTransient(error), true);
            work.run();
            Tap.equal(List.of(balance("zoe"), tries.get()), List.of(6L, 2));
        } finally {
            other.shutdown();
        }
    }

    private static boolean isTransient(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof MongoException mongo && mongo.hasErrorLabel(MongoException.TRANSIENT_TRANSACTION_ERROR_LABEL)) {
                return true;
            }
        }
        return false;
    }

    private static void many() throws Exception {
        long total = bank.total();
        String[] owners = {"ada", "bob", "eve", "zoe"};
        ExecutorService pool = Executors.newFixedThreadPool(6);
        List<Future<Integer>> done = new ArrayList<>();
        for (int client = 0; client < 6; client++) {
            int first = client;
            done.add(pool.submit(() -> {
                int made = 0;
                for (int i = 0; made < 10; i++) {
                    try {
                        bank.transfer(owners[(first + i) % 4], owners[(first + i + 1) % 4], 1);
                        made++;
                    } catch (Overdrawn error) {
                        continue;
                    } catch (Warning error) {
                        made++;
                    } catch (RuntimeException error) {
                        if (!isTransient(error)) {
                            throw error;
                        }
                    }
                    Tap.equal(bank.total(), total);
                }
                return made;
            }));
        }
        int made = 0;
        for (Future<Integer> one : done) {
            made += one.get();
        }
        pool.shutdown();
        Tap.equal(made, 60);
        Tap.equal(bank.total(), total);
        Tap.equal(bookings.count(), 62L);
    }
}
