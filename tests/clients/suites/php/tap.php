<?php

declare(strict_types=1);

/** Tests that print TAP (testanything.org), which run.py counts. */
final class Tap
{
    /** @var array<string, callable> */
    private array $tests = [];

    public function test(string $name, callable $body): void
    {
        $this->tests[$name] = $body;
    }

    public static function equal(mixed $got, mixed $expected): void
    {
        if ($got !== $expected) {
            throw new RuntimeException('got ' . var_export($got, true) . ', expected ' . var_export($expected, true));
        }
    }

    /** The error of this class that a call must raise. */
    public static function raises(string $class, callable $body): Throwable
    {
        try {
            $result = $body();
        } catch (Throwable $error) {
            if ($error instanceof $class) {
                return $error;
            }
            throw $error;
        }
        throw new RuntimeException("no $class, got " . var_export($result, true));
    }

    /** Longer than any step takes, even on a busy machine. It guards against a test that hangs; no test may depend on it. */
    private const PATIENCE_SECONDS = 120;

    public static function waitUntil(string $what, callable $holds): void
    {
        $until = microtime(true) + self::PATIENCE_SECONDS;
        while (!$holds()) {
            if (microtime(true) > $until) {
                throw new RuntimeException("$what: not within " . self::PATIENCE_SECONDS . ' s');
            }
            usleep(20_000);
        }
    }

    /** Runs every test in order, and returns the exit code. */
    public function run(): int
    {
        $only = (string) getenv('FROND_TEST');
        $count = $failed = 0;
        foreach ($this->tests as $name => $body) {
            if ($only !== '' && !str_contains($name, $only)) {
                continue;
            }
            $count++;
            try {
                $body();
                echo "ok $count - $name\n";
            } catch (Throwable $error) {
                $failed++;
                echo "not ok $count - $name\n";
                $text = get_class($error) . ' at line ' . $this->line($error) . ': ' . $error->getMessage();
                echo '  # ' . str_replace("\n", "\n  # ", $text) . "\n";
            }
        }
        echo "1..$count\n";
        return $failed || !$count ? 1 : 0;
    }

    /** The line of the test that raised the error. */
    private function line(Throwable $error): int
    {
        foreach ([['file' => $error->getFile(), 'line' => $error->getLine()], ...$error->getTrace()] as $frame) {
            if (isset($frame['file']) && $frame['file'] !== __FILE__) {
                return $frame['line'];
            }
        }
        return 0;
    }
}
