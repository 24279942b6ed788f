import com.mongodb.BasicDBList;
import com.mongodb.BasicDBObject;
import com.mongodb.DBObject;
import com.mongodb.MongoClient;
import com.mongodb.MongoClientOptions;
import com.mongodb.MongoClientURI;
import com.mongodb.util.JSON;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.logging.Level;
import java.util.logging.Logger;

/** Logs in with each connection string of a file, as login.py describes, with mongo-java-driver 2.14. */
public final class LegacyProbe {
    public static void main(String[] args) throws Exception {
        Logger.getLogger("com.mongodb").setLevel(Level.OFF);
        BasicDBList cases = (BasicDBList) JSON.parse(Files.readString(Path.of(args[0])));
        cases.parallelStream().map(one -> probe((DBObject) one)).forEachOrdered(System.out::println);
    }

    private static String probe(DBObject one) {
        String uri = (String) one.get("uri");
        BasicDBObject result = new BasicDBObject("name", one.get("name"));
        MongoClient client = null;
        try {
            MongoClientOptions.Builder options = MongoClientOptions.builder();
            if (Keys.option(uri, "tlsCAFile") != null) {
                options.socketFactory(Keys.context(uri).getSocketFactory());
            }
            // It calls TLS ssl, and would take a factory of its own for that option.
            client = new MongoClient(new MongoClientURI(Keys.withoutFiles(uri).replaceAll("&tls=[a-z]*", ""), options));
            DBObject status = client.getDB("own").command("connectionStatus");
            client.getDB("own").getCollection("c").findOne();
            client.getDB("own").getCollection("c").insert(new BasicDBObject("by", "Java 2.14"));
            List<String> users = new ArrayList<>();
            for (Object user : (List<?>) ((DBObject) status.get("authInfo")).get("authenticatedUsers")) {
                users.add(((DBObject) user).get("user") + "@" + ((DBObject) user).get("db"));
            }
            result.append("users", users);
        } catch (Exception error) {
            StringBuilder text = new StringBuilder();
            for (Throwable at = error; at != null; at = at.getCause()) {
                text.append(at).append("; ");
            }
            result.append("error", text.toString());
        } finally {
            if (client != null) {
                client.close();
            }
        }
        return JSON.serialize(result);
    }
}
