import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;

/** Spring Data MongoDB's transactions, on a replica set. */
public final class TransactionsMain {
    private TransactionsMain() {}

    public static void main(String[] args) {
        try (MongoClient client = MongoClients.create(System.getenv("FROND_URI"))) {
            Tap tap = new Tap();
            SpringBank.addTo(tap, client);
            tap.run();
        }
    }
}
