import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;

/** Current Java clients: the synchronous driver, and Spring Data MongoDB. */
public final class Main {
    public static void main(String[] args) {
        ConnectionString address = new ConnectionString(System.getenv("FROND_URI"));
        MongoClientSettings settings = MongoClientSettings.builder().applyConnectionString(address).applicationName("blog").build();
        try (MongoClient client = MongoClients.create(settings)) {
            Tap tap = new Tap();
            new SyncDriver(client).addTo(tap);
            SpringShop.addTo(tap, client);
            tap.run();
        }
    }
}
