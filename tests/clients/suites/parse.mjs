// Parse Server, newest, on a replica set: a server of its own in this process, and Parse's SDK as its client.

import assert from 'node:assert/strict';
import http from 'node:http';
import { createRequire } from 'node:module';
import { failure, run, test } from '../harness/tap.mjs';

// Express prints each error that it answers with unless it runs in a test.
process.env.NODE_ENV = 'test';
const require = createRequire(import.meta.url);
const express = require('express');
const { MongoClient } = require('mongodb');
const Parse = require('parse/node');
const { ParseServer } = require('parse-server');

const client = await MongoClient.connect(process.env.FROND_URI);
await client.db('parse').dropDatabase();

const app = express();
const listener = http.createServer(app);
// On a busy machine the client would send a request on a connection that is closed as idle at the same moment.
listener.keepAliveTimeout = 0;
await new Promise((resolve) => { listener.listen(0, '127.0.0.1', resolve); });
const serverURL = `http://127.0.0.1:${listener.address().port}/parse`;
const parseServer = new ParseServer({
  databaseURI: process.env.FROND_URI.replace('/?', '/parse?'),
  appId: 'shop',
  masterKey: 'master',
  maintenanceKey: 'maintenance',
  masterKeyIps: ['127.0.0.1', '::1', '::ffff:127.0.0.1'],
  serverURL,
  // The client goes over HTTP, as one of another process.
  directAccess: false,
  allowClientClassCreation: true,
  enableInsecureAuthAdapters: false,
  logLevel: 'error',
  silent: true,
  verbose: false,
  logsFolder: null,
  cloud: (parse) => {
    parse.Cloud.beforeSave('Product', ({ object }) => {
      if (object.get('stock') < 0) throw new parse.Error(141, 'sold out');
    });
    parse.Cloud.define('double', ({ params }) => params.n * 2);
  },
});

const Product = Parse.Object.extend('Product');
const Order = Parse.Object.extend('Order');
const master = { useMasterKey: true };
const all = (kind) => new Parse.Query(kind).ascending('name').find(master);

test('the server starts', async () => {
  await parseServer.start();
  app.use('/parse', parseServer.app);
  Parse.initialize('shop', undefined, 'master');
  Parse.serverURL = serverURL;
  const health = await fetch(`${serverURL}/health`, { headers: { 'X-Parse-Application-Id': 'shop' } });
  assert.deepEqual(await health.json(), { status: 'ok' });
  assert.equal(await Parse.Cloud.run('double', { n: 21 }), 42);
});

test('objects, queries, pointers and users', async () => {
  const [tea, cup] = await Parse.Object.saveAll([
    new Product({ name: 'tea', stock: 10, tags: ['hot', 'leaf'] }),
    new Product({ name: 'cup', stock: 3, place: new Parse.GeoPoint(46.9, 7.4) }),
  ], master);
  const order = await new Order({ name: 'o1', product: tea, count: 2 }).save(null, master);
  const found = await new Parse.Query(Order).include('product').equalTo('product', tea).first(master);
  assert.equal(found.id, order.id);
  assert.equal(found.get('product').get('stock'), 10);
  assert.equal((await new Parse.Query(Product).containsAll('tags', ['leaf', 'hot']).first(master)).id, tea.id);
  assert.equal((await new Parse.Query(Product).near('place', new Parse.GeoPoint(47, 7)).first(master)).id, cup.id);
  tea.increment('stock', 5);
  tea.addUnique('tags', 'green');
  await tea.save(null, master);
  assert.deepEqual((await new Parse.Query(Product).get(tea.id, master)).get('tags'), ['hot', 'leaf', 'green']);
  const ada = await Parse.User.signUp('ada', 'secret', { email: 'ada@shop.example' });
  assert.equal((await Parse.User.logIn('ada', 'secret')).id, ada.id);
  const taken = await failure(Parse.User.signUp('ada', 'other'));
  assert.equal(taken.code, Parse.Error.USERNAME_TAKEN);
});

test('a batch in a transaction is saved as a whole', async () => {
  const items = Array.from({ length: 8 }, (_, i) => new Product({ name: `batch ${i}`, stock: i }));
  await Parse.Object.saveAll(items, { ...master, transaction: true });
  assert.equal(await new Parse.Query(Product).startsWith('name', 'batch').count(master), 8);
});

test('a batch of which one is refused saves nothing', async () => {
  const products = await all(Product);
  const before = products.map((product) => product.get('stock'));
  for (const product of products) product.set('stock', 100);
  products.at(-1).set('stock', -1);
  products.push(new Product({ name: 'never', stock: 1 }));
  await failure(Parse.Object.saveAll(products, { ...master, transaction: true }));
  assert.deepEqual((await all(Product)).map((product) => product.get('stock')), before);
});

test('a duplicate takes the rest of its batch with it', async () => {
  await client.db('parse').collection('Product').createIndex({ name: 1 }, { unique: true });
  const count = await new Parse.Query(Product).count(master);
  const batch = [new Product({ name: 'jam', stock: 1 }), new Product({ name: 'tea', stock: 1 })];
  await failure(Parse.Object.saveAll(batch, { ...master, transaction: true }));
  assert.equal(await new Parse.Query(Product).count(master), count);
  await Parse.Object.saveAll([new Product({ name: 'jam', stock: 1 }), new Product({ name: 'pie', stock: 1 })],
    { ...master, transaction: true });
  assert.equal(await new Parse.Query(Product).count(master), count + 2);
});

test('several batches at the same time', async () => {
  const batches = Array.from({ length: 12 }, (_, b) => Array.from({ length: 5 }, (__, i) => (
    new Order({ name: `batch ${b}.${i}`, count: b }))));
  await Promise.all(batches.map((batch) => Parse.Object.saveAll(batch, { ...master, transaction: true })));
  const query = new Parse.Query(Order).startsWith('name', 'batch').limit(1000);
  assert.equal((await query.find(master)).length, 60);
  await Parse.Object.destroyAll(await query.find(master), { ...master, transaction: true });
  assert.equal(await query.count(master), 0);
});

await run(async () => {
  listener.close();
  listener.closeAllConnections();
  await client.close();
});
