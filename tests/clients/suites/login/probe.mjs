// Logs in with each connection string of a file, as login.py describes, with the Node.js driver or in mongosh.
import { readFileSync } from 'node:fs';
import { MongoClient } from 'mongodb';

/** All messages of an error and of what caused it. */
function describe(error) {
  const texts = [];
  for (let at = error; at && texts.length < 8; at = at.cause) {
    texts.push(`${at.code ?? ''} ${at.message}`);
    for (const server of at.reason?.servers?.values() ?? []) texts.push(String(server.error?.message));
  }
  return texts.join('; ');
}

async function probe({ name, uri }) {
  const client = new MongoClient(uri);
  try {
    const status = await client.db('own').command({ connectionStatus: 1 });
    await client.db('own').collection('c').findOne();
    return { name, users: status.authInfo.authenticatedUsers.map((user) => `${user.user}@${user.db}`) };
  } catch (error) {
    return { name, error: describe(error) };
  } finally {
    await client.close();
  }
}

const cases = JSON.parse(readFileSync(process.argv[2], 'utf8'));
for (const result of await Promise.all(cases.map(probe))) console.log(JSON.stringify(result));
