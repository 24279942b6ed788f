import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Java's drivers take keys from an SSLContext, and not from the options of a connection string. */
final class Keys {
    private Keys() {}

    /** The value of an option of a connection string; null if it is absent. */
    static String option(String uri, String name) {
        Matcher found = Pattern.compile("[?&]" + name + "=([^&]*)").matcher(uri);
        return found.find() ? URLDecoder.decode(found.group(1), StandardCharsets.UTF_8) : null;
    }

    /** The connection string without the options that these drivers do not know. */
    static String withoutFiles(String uri) {
        return uri.replaceAll("&tls(CAFile|CertificateKeyFile)=[^&]*", "");
    }

    /** A context with the authority and, where there is one, the client's certificate. */
    static SSLContext context(String uri) throws IOException, GeneralSecurityException {
        KeyStore trusted = emptyStore();
        trusted.setCertificateEntry("ca", certificate(Files.readString(Path.of(option(uri, "tlsCAFile")))));
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        KeyManagerFactory own = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        KeyStore keys = emptyStore();
        String file = option(uri, "tlsCertificateKeyFile");
        if (file != null) {
            String pem = Files.readString(Path.of(file));
            keys.setKeyEntry("client", key(pem), new char[0], new Certificate[] {certificate(pem)});
        }
        own.init(keys, new char[0]);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(own.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }

    private static KeyStore emptyStore() throws IOException, GeneralSecurityException {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        return store;
    }

    private static byte[] part(String pem, String kind) {
        String begin = "-----BEGIN " + kind + "-----";
        int at = pem.indexOf(begin) + begin.length();
        return Base64.getMimeDecoder().decode(pem.substring(at, pem.indexOf("-----END", at)));
    }

    private static Certificate certificate(String pem) throws GeneralSecurityException {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        return factory.generateCertificate(new ByteArrayInputStream(part(pem, "CERTIFICATE")));
    }

    private static PrivateKey key(String pem) throws GeneralSecurityException {
        return KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(part(pem, "PRIVATE KEY")));
    }
}
