<?php

declare(strict_types=1);

// The PHP extension (libmongoc), as an online shop uses it, without the PHP library.

use MongoDB\BSON;
use MongoDB\Driver\BulkWrite;
use MongoDB\Driver\Command;
use MongoDB\Driver\Exception\BulkWriteException;
use MongoDB\Driver\Exception\CommandException;
use MongoDB\Driver\Exception\ExecutionTimeoutException;
use MongoDB\Driver\Exception\InvalidArgumentException;
use MongoDB\Driver\Manager;
use MongoDB\Driver\Query;
use MongoDB\Driver\ReadConcern;
use MongoDB\Driver\ReadPreference;
use MongoDB\Driver\Server;
use MongoDB\Driver\WriteConcern;
use MongoDB\Driver\WriteResult;

require __DIR__ . '/tap.php';

const DATABASE = 'php';

/** A product of the shop: an application object that serializes itself. */
final class Product implements BSON\Persistable
{
    public ?BSON\ObjectId $id = null;

    public function __construct(public string $name = '', public float $price = 0.0, public array $tags = [])
    {
    }

    public function bsonSerialize(): array
    {
        return ['_id' => $this->id ??= new BSON\ObjectId(), 'name' => $this->name, 'price' => $this->price, 'tags' => $this->tags];
    }

    public function bsonUnserialize(array $data): void
    {
        [$this->id, $this->name, $this->price] = [$data['_id'], $data['name'], $data['price']];
        $this->tags = (array) $data['tags'];
    }
}

$manager = new Manager((string) getenv('FROND_URI'), ['appname' => 'shop', 'serverSelectionTimeoutMS' => 60000]);

/** The reply of a command, as arrays. */
$command = function (array $command, array $options = [], string $database = DATABASE) use ($manager): array {
    $cursor = $manager->executeCommand($database, new Command($command), $options);
    $cursor->setTypeMap(['root' => 'array', 'document' => 'array', 'array' => 'array']);
    return $cursor->toArray();
};
$run = fn (array $body): array => $command($body)[0];
$find = function (string $collection, array $filter = [], array $options = []) use ($manager): array {
    $cursor = $manager->executeQuery(DATABASE . '.' . $collection, new Query($filter, $options));
    $cursor->setTypeMap(['root' => 'array', 'document' => 'array', 'array' => 'array']);
    return $cursor->toArray();
};
$write = function (string $collection, callable $fill, array $bulk = [], array $options = []) use ($manager): WriteResult {
    $operations = new BulkWrite($bulk);
    $fill($operations);
    return $manager->executeBulkWrite(DATABASE . '.' . $collection, $operations, $options);
};
$count = fn (string $collection, array $query = []): int => $run(['count' => $collection, 'query' => (object) $query])['n'];
/** An empty collection with the products 0 to n - 1. */
$fresh = function (string $collection, int $n = 0) use ($run, $write): void {
    $run(['drop' => $collection]);
    if ($n > 0) {
        $write($collection, function (BulkWrite $bulk) use ($n): void {
            for ($i = 0; $i < $n; $i++) {
                $bulk->insert(['_id' => $i, 'k' => $i % 10, 'name' => "product $i", 'tags' => ['all', 't' . $i % 3]]);
            }
        });
    }
};

$tap = new Tap();

$tap->test('the server introduces itself', function () use ($manager, $run): void {
    Tap::equal($run(['ping' => 1])['ok'], 1.0);
    $server = $manager->selectServer(new ReadPreference(ReadPreference::PRIMARY));
    Tap::equal(in_array($server->getType(), [Server::TYPE_STANDALONE, Server::TYPE_RS_PRIMARY, Server::TYPE_MONGOS]), true);
    Tap::equal($server->getInfo()['isWritablePrimary'] ?? $server->getInfo()['ismaster'], true);
    Tap::equal(version_compare($run(['buildInfo' => 1])['version'], '8.0.0', '>='), true);
});

$tap->test('bulk writes of all kinds count what they did', function () use ($write, $fresh, $find): void {
    $fresh('bulk');
    $result = $write('bulk', function (BulkWrite $bulk): void {
        $id = $bulk->insert(['name' => 'own id']);
        Tap::equal($id instanceof BSON\ObjectId, true);
        $bulk->insert(['_id' => 1, 'n' => 1]);
        $bulk->insert(['_id' => 2, 'n' => 2]);
        $bulk->update(['_id' => 1], ['$inc' => ['n' => 10]]);
        $bulk->update(['n' => ['$gt' => 0]], ['$set' => ['seen' => true]], ['multi' => true]);
        $bulk->update(['_id' => 5], ['$set' => ['up' => 1]], ['upsert' => true]);
        $bulk->update(['_id' => 2], ['replaced' => true]);
        $bulk->delete(['name' => 'own id'], ['limit' => 1]);
        Tap::equal(count($bulk), 8);
    });
    Tap::equal(
        [$result->getInsertedCount(), $result->getMatchedCount(), $result->getModifiedCount(), $result->getUpsertedCount(), $result->getDeletedCount()],
        [3, 4, 4, 1, 1],
    );
    Tap::equal($result->getUpsertedIds(), [5 => 5]);
    Tap::equal($result->isAcknowledged(), true);
    Tap::equal($find('bulk', [], ['sort' => ['_id' => 1]]), [
        ['_id' => 1, 'n' => 11, 'seen' => true], ['_id' => 2, 'replaced' => true], ['_id' => 5, 'up' => 1],
    ]);
});

$tap->test('errors of bulks name index, code and key', function () use ($write, $fresh, $run, $count): void {
    $fresh('errors');
    $run(['createIndexes' => 'errors', 'indexes' => [['key' => ['sku' => 1], 'name' => 'sku_1', 'unique' => true]]]);
    $fill = function (BulkWrite $bulk): void {
        foreach ([[1, 'a'], [2, 'a'], [3, 'b'], [1, 'c'], [4, 'd']] as [$id, $sku]) {
            $bulk->insert(['_id' => $id, 'sku' => $sku]);
        }
    };
    $error = Tap::raises(BulkWriteException::class, fn () => $write('errors', $fill));
    $errors = $error->getWriteResult()->getWriteErrors();
    Tap::equal([count($errors), $errors[0]->getIndex(), $errors[0]->getCode()], [1, 1, 11000]);
    Tap::equal($errors[0]->getMessage(), 'E11000 duplicate key error collection: php.errors index: sku_1 dup key: { sku: "a" }');
    Tap::equal($error->getWriteResult()->getInsertedCount(), 1);
    $error = Tap::raises(BulkWriteException::class, fn () => $write('errors', $fill, ['ordered' => false]));
    $codes = array_map(fn ($one) => [$one->getIndex(), $one->getCode()], $error->getWriteResult()->getWriteErrors());
    Tap::equal($codes, [[0, 11000], [1, 11000], [3, 11000]]);
    Tap::equal($count('errors'), 3);
    Tap::raises(BulkWriteException::class, fn () => $write('errors', fn ($bulk) => $bulk->update([], ['$nosuch' => ['a' => 1]])));
    Tap::raises(InvalidArgumentException::class, fn () => $write('errors', fn () => null));
});

$tap->test('objects of the application store and load themselves', function () use ($manager, $write, $fresh): void {
    $fresh('products');
    $mug = new Product('mug', 4.5, ['kitchen', 'blue']);
    $write('products', fn (BulkWrite $bulk) => $bulk->insert($mug));
    $found = $manager->executeQuery(DATABASE . '.products', new Query(['tags' => 'blue']))->toArray()[0];
    Tap::equal(get_class($found), Product::class);
    Tap::equal([$found->name, $found->price, $found->tags, (string) $found->id], ['mug', 4.5, ['kitchen', 'blue'], (string) $mug->id]);
});

$tap->test('values of every type keep their type', function () use ($write, $fresh, $find, $count): void {
    $fresh('types');
    $document = [
        '_id' => new BSON\ObjectId(), 'double' => 1.5, 'string' => 'zwölf', 'object' => ['a' => ['b' => 1]], 'array' => [1, 'two', null],
        'binData' => new BSON\Binary("\x00\xff", BSON\Binary::TYPE_GENERIC), 'bool' => false, 'date' => new BSON\UTCDateTime(-1000),
        'null' => null, 'regex' => new BSON\Regex('^a', 'i'), 'javascript' => new BSON\Javascript('f()'), 'int' => 7,
        'timestamp' => new BSON\Timestamp(6, 5), 'long' => 2 ** 53 + 1, 'decimal' => new BSON\Decimal128('1.50'),
        'minKey' => new BSON\MinKey(), 'maxKey' => new BSON\MaxKey(),
    ];
    $write('types', fn (BulkWrite $bulk) => $bulk->insert($document));
    $found = $find('types')[0];
    foreach ($document as $name => $value) {
        Tap::equal(serialize($found[$name]), serialize($value));
        if (!in_array($name, ['_id', 'array'], true)) {
            Tap::equal([$name, $count('types', [$name => ['$type' => $name]])], [$name, 1]);
        }
    }
    Tap::equal($find('types', ['date' => ['$lt' => new BSON\UTCDateTime(0)]])[0]['date']->toDateTime()->format('Y'), '1969');
});

$tap->test('queries: operators, sort, skip, limit, projection', function () use ($fresh, $find, $count): void {
    $fresh('queries', 100);
    Tap::equal($find('queries', ['k' => ['$gte' => 8]], ['sort' => ['k' => -1, '_id' => 1], 'limit' => 2, 'skip' => 1, 'projection' => ['k' => 1]]),
        [['_id' => 19, 'k' => 9], ['_id' => 29, 'k' => 9]]);
    Tap::equal($count('queries', ['tags' => ['$all' => ['all', 't1']]]), 33);
    Tap::equal($count('queries', ['$or' => [['_id' => ['$in' => [1, 2]]], ['name' => new BSON\Regex('^PRODUCT 9', 'i')]]]), 13);
    Tap::equal($count('queries', ['$nor' => [['k' => ['$lt' => 9]], ['_id' => 9]]]), 9);
    Tap::equal($count('queries', ['$expr' => ['$eq' => ['$k', '$_id']]]), 10);
    Tap::equal($find('queries', ['k' => 3, 'tags' => ['$elemMatch' => ['$eq' => 't0']]], ['projection' => ['tags' => ['$slice' => -1], 'k' => 1], 'limit' => 1]),
        [['_id' => 3, 'k' => 3, 'tags' => ['t0']]]);
    Tap::equal($find('queries', [], ['limit' => 1, 'sort' => ['name' => -1]])[0]['name'], 'product 99');
    Tap::equal($find('nothing here'), []);
});

$tap->test('cursors: batches, a walk of an iterator, an early end', function () use ($manager, $fresh, $find): void {
    $fresh('cursors', 3000);
    $cursor = $manager->executeQuery(DATABASE . '.cursors', new Query([], ['batchSize' => 70, 'sort' => ['_id' => 1]]));
    $cursor->setTypeMap(['root' => 'array']);
    Tap::equal($cursor->isDead(), false);
    $seen = 0;
    foreach ($cursor as $document) {
        Tap::equal($document['_id'], $seen++);
    }
    Tap::equal([$seen, $cursor->isDead(), (string) $cursor->getId()], [3000, true, '0']);
    $cursor = $manager->executeQuery(DATABASE . '.cursors', new Query([], ['batchSize' => 2]));
    $iterator = new IteratorIterator($cursor);
    $iterator->rewind();
    $id = (int) (string) $cursor->getId();
    Tap::equal($id !== 0, true);
    unset($iterator, $cursor);
    $error = Tap::raises(CommandException::class, fn () => $manager->executeCommand(DATABASE, new Command(['getMore' => $id, 'collection' => 'cursors'])));
    Tap::equal($error->getCode(), 43);
    Tap::equal(count($find('cursors', [], ['limit' => 250, 'batchSize' => 100])), 250);
    Tap::equal(count($find('cursors', [], ['singleBatch' => true, 'batchSize' => 9])), 9);
});

$tap->test('updates: operators, array filters, positional, pipeline', function () use ($write, $fresh, $find): void {
    $fresh('orders');
    $write('orders', fn (BulkWrite $bulk) => $bulk->insert(['_id' => 1, 'lines' => [['sku' => 'a', 'n' => 1], ['sku' => 'b', 'n' => 5]], 'total' => 6]));
    $result = $write('orders', function (BulkWrite $bulk): void {
        $bulk->update(['_id' => 1], ['$push' => ['lines' => ['$each' => [['sku' => 'c', 'n' => 9]], '$position' => 0]], '$mul' => ['total' => 2], '$currentDate' => ['at' => true]]);
        $bulk->update(['_id' => 1], ['$set' => ['lines.$[big].big' => true]], ['arrayFilters' => [['big.n' => ['$gte' => 5]]]]);
        $bulk->update(['lines.sku' => 'a'], ['$inc' => ['lines.$.n' => 100]]);
        $bulk->update(['_id' => 1], [['$set' => ['total' => ['$sum' => '$lines.n']]]]);
        $bulk->update(['_id' => 1], ['$pull' => ['lines' => ['sku' => 'b']], '$unset' => ['nothing' => '']]);
    });
    Tap::equal($result->getModifiedCount(), 5);
    $order = $find('orders')[0];
    Tap::equal($order['at'] instanceof BSON\UTCDateTime, true);
    unset($order['at']);
    Tap::equal($order, ['_id' => 1, 'lines' => [['sku' => 'c', 'n' => 9, 'big' => true], ['sku' => 'a', 'n' => 101]], 'total' => 115]);
});

$tap->test('findAndModify takes a number from a sequence', function () use ($fresh, $run): void {
    $fresh('sequences');
    $next = fn (): int => $run(['findAndModify' => 'sequences', 'query' => ['_id' => 'orders'], 'update' => ['$inc' => ['n' => 1]], 'upsert' => true, 'new' => true])['value']['n'];
    Tap::equal([$next(), $next(), $next()], [1, 2, 3]);
    $removed = $run(['findAndModify' => 'sequences', 'query' => ['_id' => 'orders'], 'remove' => true]);
    Tap::equal([$removed['value'], $removed['lastErrorObject']], [['_id' => 'orders', 'n' => 3], ['n' => 1]]);
    Tap::equal($run(['findAndModify' => 'sequences', 'query' => ['_id' => 'x'], 'remove' => true])['value'], null);
});

$tap->test('aggregation: group, lookup, unwind, facet, cursor', function () use ($command, $write, $fresh): void {
    $fresh('sales', 30);
    $fresh('kinds');
    $write('kinds', fn (BulkWrite $bulk) => $bulk->insert(['_id' => 't1', 'title' => 'one']));
    $aggregate = fn (array $pipeline, array $more = []): array => $command(['aggregate' => 'sales', 'pipeline' => $pipeline, 'cursor' => (object) $more]);
    Tap::equal($aggregate([['$unwind' => '$tags'], ['$group' => ['_id' => '$tags', 'n' => ['$sum' => 1], 'top' => ['$max' => '$k']]], ['$sort' => ['n' => -1, '_id' => 1]], ['$limit' => 2]]),
        [['_id' => 'all', 'n' => 30, 'top' => 9], ['_id' => 't0', 'n' => 10, 'top' => 9]]);
    Tap::equal($aggregate([['$match' => ['_id' => 4]], ['$lookup' => ['from' => 'kinds', 'localField' => 'tags', 'foreignField' => '_id', 'as' => 'kind']], ['$project' => ['kind.title' => 1]]]),
        [['_id' => 4, 'kind' => [['title' => 'one']]]]);
    $facets = $aggregate([['$facet' => ['n' => [['$count' => 'all']], 'low' => [['$match' => ['k' => ['$lt' => 2]]], ['$sortByCount' => '$k']]]]])[0];
    Tap::equal([$facets['n'], count($facets['low'])], [[['all' => 30]], 2]);
    Tap::equal(count($aggregate([['$match' => new stdClass()]], ['batchSize' => 4])), 30);
    $error = Tap::raises(CommandException::class, fn () => $aggregate([['$nosuch' => 1]]));
    Tap::equal($error->getCode(), 40324);
});

$tap->test('distinct, count, explain, hint', function () use ($fresh, $run, $find): void {
    $fresh('various', 40);
    Tap::equal($run(['distinct' => 'various', 'key' => 'tags', 'query' => ['_id' => ['$lt' => 2]]])['values'], ['all', 't0', 't1']);
    Tap::equal($run(['count' => 'various', 'query' => ['k' => 1], 'limit' => 3])['n'], 3);
    $run(['createIndexes' => 'various', 'indexes' => [['key' => ['k' => 1], 'name' => 'by k']]]);
    $plan = $run(['explain' => ['find' => 'various', 'filter' => ['k' => 4]], 'verbosity' => 'executionStats']);
    Tap::equal([$plan['queryPlanner']['winningPlan']['inputStage']['indexName'], $plan['executionStats']['nReturned']], ['by k', 4]);
    Tap::equal(count($find('various', ['name' => ['$exists' => true]], ['hint' => 'by k'])), 40);
    $error = Tap::raises(CommandException::class, fn () => $find('various', [], ['hint' => 'nosuch']));
    Tap::equal($error->getCode(), 2);
});

$tap->test('indexes: create, list, drop, and what stops them', function () use ($command, $fresh, $run): void {
    $fresh('indexed', 20);
    $made = $run(['createIndexes' => 'indexed', 'indexes' => [
        ['key' => ['name' => 1], 'name' => 'name_1', 'unique' => true],
        ['key' => ['k' => 1, 'name' => -1], 'name' => 'both'],
        ['key' => ['tags' => 1], 'name' => 'tags', 'partialFilterExpression' => ['k' => ['$gt' => 5]]],
    ]]);
    Tap::equal([$made['numIndexesBefore'], $made['numIndexesAfter']], [1, 4]);
    $listed = $command(['listIndexes' => 'indexed']);
    Tap::equal(array_column($listed, 'name'), ['_id_', 'name_1', 'both', 'tags']);
    Tap::equal([$listed[1]['unique'], $listed[2]['key'], $listed[3]['partialFilterExpression']], [true, ['k' => 1, 'name' => -1], ['k' => ['$gt' => 5]]]);
    $again = $run(['createIndexes' => 'indexed', 'indexes' => [['key' => ['name' => 1], 'name' => 'name_1', 'unique' => true]]]);
    Tap::equal($again['note'], 'all indexes already exist');
    $code = fn (array $index): int => Tap::raises(CommandException::class, fn () => $run(['createIndexes' => 'indexed', 'indexes' => [$index]]))->getCode();
    Tap::equal($code(['key' => ['k' => 1], 'name' => 'k_1', 'unique' => true]), 11000);
    Tap::equal($code(['key' => ['other' => 1], 'name' => 'both']), 86);
    Tap::equal($code(['key' => ['k' => 'nosuch'], 'name' => 'x']), 67);
    $run(['dropIndexes' => 'indexed', 'index' => 'both']);
    $run(['dropIndexes' => 'indexed', 'index' => '*']);
    Tap::equal(count($command(['listIndexes' => 'indexed'])), 1);
});

$tap->test('write concerns and unacknowledged writes', function () use ($manager, $write, $fresh, $count): void {
    $fresh('concerns');
    foreach ([new WriteConcern(1), new WriteConcern(WriteConcern::MAJORITY, 1000), new WriteConcern(1, 0, true)] as $n => $concern) {
        $result = $write('concerns', fn (BulkWrite $bulk) => $bulk->insert(['_id' => $n]), [], ['writeConcern' => $concern]);
        Tap::equal($result->isAcknowledged(), true);
    }
    $result = $write('concerns', fn (BulkWrite $bulk) => $bulk->insert(['_id' => 'unacknowledged']), [], ['writeConcern' => new WriteConcern(0)]);
    Tap::equal($result->isAcknowledged(), false);
    Tap::waitUntil('all documents', fn (): bool => $count('concerns') === 4);
    Tap::raises(BulkWriteException::class, fn () => $write('concerns', fn (BulkWrite $bulk) => $bulk->insert([]), [], ['writeConcern' => new WriteConcern(4)]));
});

$tap->test('sessions, read concerns, read preferences', function () use ($manager, $write, $fresh, $count): void {
    $fresh('sessions');
    $session = $manager->startSession(['causalConsistency' => true]);
    $write('sessions', fn (BulkWrite $bulk) => $bulk->insert(['_id' => 1]), [], ['session' => $session]);
    $query = new Query(['_id' => 1], ['readConcern' => new ReadConcern(ReadConcern::LOCAL)]);
    $options = ['session' => $session, 'readPreference' => new ReadPreference(ReadPreference::SECONDARY_PREFERRED)];
    Tap::equal(count($manager->executeQuery(DATABASE . '.sessions', $query, $options)->toArray()), 1);
    $session->endSession();
    $session = $manager->startSession();
    $session->startTransaction();
    $write('sessions', fn (BulkWrite $bulk) => $bulk->insert(['_id' => 2]), [], ['session' => $session]);
    Tap::equal($count('sessions'), 1);
    $session->commitTransaction();
    Tap::equal($count('sessions'), 2);
});

$tap->test('time limits and wrong commands are errors with codes', function () use ($command, $fresh, $find): void {
    $fresh('limits', 600);
    $join = ['$lookup' => ['from' => 'limits', 'let' => ['k' => '$k'], 'pipeline' => [['$match' => ['$expr' => ['$gte' => [['$add' => ['$k', '$$k']], 0]]]]], 'as' => 'all']];
    $error = Tap::raises(ExecutionTimeoutException::class, fn () => $command(['aggregate' => 'limits', 'pipeline' => [$join, ['$unwind' => '$all'], $join, ['$count' => 'n']], 'cursor' => new stdClass(), 'maxTimeMS' => 50]));
    Tap::equal($error->getCode(), 50);
    $error = Tap::raises(CommandException::class, fn () => $command(['nosuch' => 1]));
    Tap::equal([$error->getCode(), $error->getMessage()], [59, "no such command: 'nosuch'"]);
    Tap::equal($error->getResultDocument()->codeName, 'CommandNotFound');
    Tap::equal(Tap::raises(CommandException::class, fn () => $find('limits', ['k' => ['$nosuch' => 1]]))->getCode(), 2);
    Tap::equal(Tap::raises(CommandException::class, fn () => $command(['find' => 'limits', 'limitt' => 1]))->getCode(), 40415);
});

$tap->test('the catalog: create, list, rename, drop', function () use ($command, $run, $write): void {
    $run(['dropDatabase' => 1]);
    $run(['create' => 'made']);
    Tap::equal(Tap::raises(CommandException::class, fn () => $run(['create' => 'made', 'capped' => true, 'size' => 4096]))->getCode() > 0, true);
    $write('filled', fn (BulkWrite $bulk) => $bulk->insert(['_id' => 1]));
    $names = fn (): array => array_column($command(['listCollections' => 1, 'nameOnly' => true]), 'name');
    $listed = $names();
    sort($listed);
    Tap::equal($listed, ['filled', 'made']);
    $command(['renameCollection' => DATABASE . '.filled', 'to' => DATABASE . '.made', 'dropTarget' => true], [], 'admin');
    Tap::equal($names(), ['made']);
    $databases = $command(['listDatabases' => 1, 'nameOnly' => true], [], 'admin')[0]['databases'];
    Tap::equal(in_array(DATABASE, array_column($databases, 'name'), true), true);
    $run(['drop' => 'made']);
    Tap::equal($names(), []);
});

$tap->test('capped collections, a tailable cursor, validators, views', function () use ($manager, $command, $run, $write, $find): void {
    foreach (['log', 'checked', 'seen'] as $name) {
        $run(['drop' => $name]);
    }
    $run(['create' => 'log', 'capped' => true, 'size' => 65536, 'max' => 3]);
    $add = fn (int ...$ids) => $write('log', fn (BulkWrite $bulk) => array_map(fn (int $id) => $bulk->insert(['_id' => $id]), $ids));
    $add(1, 2, 3, 4);
    Tap::equal(array_column($find('log'), '_id'), [2, 3, 4]);
    $cursor = $manager->executeQuery(DATABASE . '.log', new Query([], ['tailable' => true]));
    $cursor->setTypeMap(['root' => 'array']);
    $iterator = new IteratorIterator($cursor);
    $iterator->rewind();
    for ($seen = []; count($seen) < 3; $iterator->next()) {
        $seen[] = $iterator->current()['_id'];
    }
    $add(5);
    $iterator->next();
    Tap::equal([$seen, $iterator->current()['_id'] ?? null, $cursor->isDead()], [[2, 3, 4], 5, false]);
    unset($iterator, $cursor);
    $run(['create' => 'checked', 'validator' => ['n' => ['$type' => 'int', '$gt' => 0]]]);
    $error = Tap::raises(BulkWriteException::class, fn () => $write('checked', fn (BulkWrite $bulk) => $bulk->insert(['n' => -1])));
    Tap::equal($error->getWriteResult()->getWriteErrors()[0]->getCode(), 121);
    $write('checked', fn (BulkWrite $bulk) => $bulk->insert(['_id' => 1, 'n' => 5]));
    $run(['create' => 'seen', 'viewOn' => 'checked', 'pipeline' => [['$project' => ['twice' => ['$multiply' => ['$n', 2]]]]]]);
    Tap::equal($find('seen'), [['_id' => 1, 'twice' => 10]]);
});

exit($tap->run());
