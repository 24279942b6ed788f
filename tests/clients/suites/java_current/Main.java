import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;

/** Current Java clients: the synchronous driver, and Spring Data MongoDB. */
public final class Main {
    public static void main(String[] args) {
        try (MongoClient client = MongoClients.create(System.getenv("FROND_URI") + "/?appName=blog")) {
            Tap tap = new Tap();
            new SyncDriver(client).addTo(tap);
            SpringShop.addTo(tap, client);
            tap.run();
        }
    }
}
