import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.ServerVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.util.List;

/** Runs mongo-java-server on a port of the loopback interface until it is killed. */
public final class Launcher {
    /** In the handshake the newest version of it reports a wire version of 2018, which today's drivers refuse. */
    private static final class Version implements MongoVersion {
        @Override
        public List<Integer> getVersionArray() {
            return ServerVersion.MONGO_5_0.getVersionArray();
        }

        @Override
        public int getWireVersion() {
            return 13;
        }
    }

    public static void main(String[] arguments) {
        MemoryBackend backend = new MemoryBackend();
        backend.version(new Version());
        new MongoServer(backend).bind("127.0.0.1", Integer.parseInt(arguments[0]));
    }
}
