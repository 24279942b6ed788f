import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import java.util.logging.Level;
import java.util.logging.Logger;
import javax.net.ssl.SSLContext;
import org.bson.Document;
import org.bson.json.JsonWriterSettings;

/** Logs in with each connection string of a file, as login.py describes, with the current Java driver. */
public final class LoginProbe {
    public static void main(String[] args) throws Exception {
        Logger.getLogger("org.mongodb").setLevel(Level.OFF);
        Document all = Document.parse("{\"cases\": " + Files.readString(Path.of(args[0])) + "}");
        Stream<Document> results = all.getList("cases", Document.class).parallelStream().map(LoginProbe::probe);
        for (Document result : results.toList()) {
            System.out.println(result.toJson(JsonWriterSettings.builder().indent(false).build()));
        }
    }

    private static Document probe(Document one) {
        String uri = one.getString("uri");
        Document result = new Document("name", one.getString("name"));
        try (MongoClient client = MongoClients.create(settings(uri))) {
            Document status = client.getDatabase("own").runCommand(new Document("connectionStatus", 1));
            client.getDatabase("own").getCollection("c").find().first();
            List<String> users = new ArrayList<>();
            List<Document> found = status.get("authInfo", Document.class).getList("authenticatedUsers", Document.class);
            for (Document user : found) {
                users.add(user.getString("user") + "@" + user.getString("db"));
            }
            return result.append("users", users);
        } catch (Exception error) {
            StringBuilder text = new StringBuilder();
            for (Throwable at = error; at != null; at = at.getCause()) {
                text.append(at).append("; ");
            }
            return result.append("error", text.toString());
        }
    }

    private static MongoClientSettings settings(String uri) throws Exception {
        MongoClientSettings.Builder builder =
                MongoClientSettings.builder().applyConnectionString(new ConnectionString(Keys.withoutFiles(uri)));
        if (Keys.option(uri, "tlsCAFile") != null) {
            SSLContext context = Keys.context(uri);
            builder.applyToSslSettings(ssl -> ssl.context(context));
        }
        return builder.build();
    }
}
