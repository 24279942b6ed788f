// Starts the two servers, each on a free port of the loopback interface, and ends them by their pid.
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { once } from 'node:events';
import { MongoClient } from 'mongodb';

/** How often a server is started that cannot choose its port: another program may have taken it meanwhile. */
const PORTS_TRIED = 5;

async function freePort() {
  const probe = createServer();
  probe.listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address();
  probe.close();
  await once(probe, 'close');
  return port;
}

/** Longer than a server takes to start, even on a busy machine. */
const PATIENCE_MS = 120_000;

/** Waits until a server replies; false if it ends instead. */
async function answers(uri, child) {
  const until = Date.now() + PATIENCE_MS;
  while (Date.now() < until) {
    if (child.exitCode !== null) return false;
    const client = new MongoClient(uri, { serverSelectionTimeoutMS: 300 });
    try {
      await client.db('admin').command({ ping: 1 });
      return true;
    } catch {
      await new Promise((done) => setTimeout(done, 100));
    } finally {
      await client.close(true);
    }
  }
  throw new Error(`${child.spawnfile} does not answer`);
}

/** The port that a server of Frond has chosen, from its log. */
async function portOf(child) {
  for await (const line of createInterface({ input: child.stdout })) {
    const found = /aiting for connections.*?port\D*(\d+)/.exec(line);
    if (found) {
      child.stdout.resume();
      return Number(found[1]);
    }
  }
  throw new Error(`${child.spawnfile} ended with ${child.exitCode}`);
}

class Server {
  constructor(child, uri, folder) {
    Object.assign(this, { child, uri, folder });
    // The servers end with this process, however it ends.
    process.on('exit', () => child.kill('SIGKILL'));
  }

  async stop() {
    if (this.child.exitCode === null) {
      this.child.kill('SIGTERM');
      await once(this.child, 'exit');
    }
    if (this.folder) await rm(this.folder, { recursive: true, force: true });
  }
}

export async function startFrond(binary) {
  const folder = await mkdtemp(join(tmpdir(), 'frond-differential-'));
  const child = spawn(binary, ['serve', '--dbpath', folder, '--port', '0', '--unixSocketPrefix', folder], { stdio: ['ignore', 'pipe', 'ignore'] });
  const server = new Server(child, undefined, folder);
  server.uri = `mongodb://127.0.0.1:${await portOf(child)}`;
  return server;
}

export async function startJava(jars, launcher) {
  for (let tries = 0; tries < PORTS_TRIED; tries += 1) {
    const port = await freePort();
    const child = spawn('java', ['-Xmx256m', '-XX:TieredStopAtLevel=1', '-cp', `${jars}:${jars}/*`, launcher, String(port)], { stdio: 'ignore' });
    const server = new Server(child, `mongodb://127.0.0.1:${port}`);
    if (await answers(server.uri, child)) return server;
  }
  throw new Error(`${launcher} does not start`);
}
