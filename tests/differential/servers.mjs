// Starts the two servers, each on a free port of the loopback interface, and ends them by their pid.
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { once } from 'node:events';
import { MongoClient } from 'mongodb';

async function freePort() {
  const probe = createServer();
  probe.listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address();
  probe.close();
  await once(probe, 'close');
  return port;
}

async function answers(uri, child) {
  for (let tries = 0; tries < 300; tries += 1) {
    if (child.exitCode !== null) throw new Error(`${child.spawnfile} ended with ${child.exitCode}`);
    const client = new MongoClient(uri, { serverSelectionTimeoutMS: 300 });
    try {
      await client.db('admin').command({ ping: 1 });
      return;
    } catch {
      await new Promise((done) => setTimeout(done, 100));
    } finally {
      await client.close(true);
    }
  }
  throw new Error(`${child.spawnfile} does not answer`);
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
  const port = await freePort();
  const folder = await mkdtemp(join(tmpdir(), 'frond-differential-'));
  const child = spawn(binary, ['serve', '--dbpath', folder, '--port', String(port), '--unixSocketPrefix', folder], { stdio: 'ignore' });
  const server = new Server(child, `mongodb://127.0.0.1:${port}`, folder);
  await answers(server.uri, child);
  return server;
}

export async function startJava(jars, launcher) {
  const port = await freePort();
  const child = spawn('java', ['-Xmx256m', '-XX:TieredStopAtLevel=1', '-cp', `${jars}:${jars}/*`, launcher, String(port)], { stdio: 'ignore' });
  const server = new Server(child, `mongodb://127.0.0.1:${port}`);
  await answers(server.uri, child);
  return server;
}
