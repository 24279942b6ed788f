import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;

/** Runs tests and prints TAP, which run.py counts. */
final class Tap {
    interface Test {
        void run() throws Exception;
    }

    private final Map<String, Test> tests = new LinkedHashMap<>();

    void test(String name, Test test) {
        tests.put(name, test);
    }

    static void equal(Object got, Object expected) {
        if (!Objects.equals(got, expected)) {
            throw new AssertionError("got " + got + ", expected " + expected);
        }
    }

    static <E extends Exception> E raises(Class<E> kind, Test test) throws Exception {
        try {
            test.run();
        } catch (Exception error) {
            if (kind.isInstance(error)) {
                return kind.cast(error);
            }
            throw error;
        }
        throw new AssertionError("no " + kind.getSimpleName());
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    /** Longer than any step takes, even on a busy machine. It guards against a test that hangs; no test may depend on it. */
    private static final long PATIENCE_MS = 120_000;

    static void waitUntil(String what, Condition condition) throws Exception {
        long until = System.currentTimeMillis() + PATIENCE_MS;
        while (!condition.holds()) {
            if (System.currentTimeMillis() > until) {
                throw new AssertionError(what + ": not within " + PATIENCE_MS + " ms");
            }
            Thread.sleep(20);
        }
    }

    /** Runs all tests and ends the process. */
    void run() {
        int count = 0;
        int failed = 0;
        String only = System.getenv().getOrDefault("FROND_TEST", "");
        for (Map.Entry<String, Test> entry : tests.entrySet()) {
            if (!entry.getKey().contains(only)) {
                continue;
            }
            count++;
            try {
                entry.getValue().run();
                System.out.println("ok " + count + " - " + entry.getKey());
            } catch (Throwable error) {
                failed++;
                System.out.println("not ok " + count + " - " + entry.getKey());
                System.out.println("  # " + error);
                for (StackTraceElement frame : error.getStackTrace()) {
                    // The suites are in no package; frames in packages belong to the driver or Java.
                    if (!frame.getClassName().contains(".") && !frame.getClassName().startsWith("Tap")) {
                        System.out.println("  #   at " + frame);
                    }
                }
            }
        }
        System.out.println("1.." + count);
        System.exit(failed == 0 && count > 0 ? 0 : 1);
    }
}
