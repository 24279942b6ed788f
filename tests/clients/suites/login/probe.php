<?php

declare(strict_types=1);

// Logs in with each connection string of a file, as login.py describes, with the PHP extension.

use MongoDB\Driver\Command;
use MongoDB\Driver\Manager;
use MongoDB\Driver\Query;

/** The result of one case. */
function probe(string $name, string $uri): array
{
    try {
        $manager = new Manager($uri);
        $status = $manager->executeCommand('own', new Command(['connectionStatus' => 1]))->toArray()[0];
        $manager->executeQuery('own.c', new Query([], ['limit' => 1]))->toArray();
        $users = array_map(fn ($user) => "$user->user@$user->db", $status->authInfo->authenticatedUsers);
        return ['name' => $name, 'users' => $users];
    } catch (Throwable $error) {
        return ['name' => $name, 'error' => $error->getCode() . ' ' . $error->getMessage()];
    }
}

foreach (json_decode(file_get_contents($argv[1]), true) as $case) {
    echo json_encode(probe($case['name'], $case['uri']), JSON_UNESCAPED_SLASHES), "\n";
}
