// Talking to the server.

export const session = { needsLogin: false, token: null, user: null, db: null };

// Called when the server wants a login.
let onLogin = () => {};

export const whenLoginNeeded = (call) => { onLogin = call; };

export class CommandError extends Error {
  constructor(message, reply = {}) {
    super(message);
    this.code = reply.code?.$numberInt ?? reply.code;
    this.codeName = reply.codeName;
  }
}

async function request(method, path, body, signal) {
  let reply;
  try {
    reply = await fetch(path, {
      method,
      body,
      signal,
      headers: { "x-frond-token": session.token ?? "none", ...(body === undefined ? {} : { "content-type": "application/json" }) },
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new CommandError("The server does not answer. The page goes on when it does.");
  }
  const text = await reply.text();
  let parsed;
  try {
    parsed = JSON.parse(text);
  } catch {
    throw new CommandError(`The server answered with ${reply.status}.`);
  }
  if (reply.ok) return parsed;
  const error = new CommandError(parsed.error?.message ?? `The server answered with ${reply.status}.`);
  error.status = reply.status;
  throw error;
}

function remember(state) {
  Object.assign(session, { token: null, user: null, db: null }, state);
  return session;
}

export const loadSession = async () => remember(await request("GET", "/api/session"));

export const logIn = async (user, db, password) =>
  remember(await request("POST", "/api/login", JSON.stringify({ user, db, password })));

export async function logOut() {
  await request("POST", "/api/logout", "");
  remember({});
}

// Runs a command: a document, or a text in Extended JSON. Options: signal, canonical.
export async function command(db, document, options = {}) {
  const text = typeof document === "string" ? document : JSON.stringify(document);
  const form = options.canonical ? "&form=canonical" : "";
  const path = `/api/command?db=${encodeURIComponent(db)}${form}`;
  let reply;
  try {
    reply = await request("POST", path, text, options.signal);
  } catch (error) {
    if (error.status === 401) onLogin();
    // After a restart of the server there is another token.
    if (error.status === 403 && !options.again && (await loadSession()).token) {
      return command(db, document, { ...options, again: true });
    }
    throw error;
  }
  if (Number(reply.ok?.$numberDouble ?? reply.ok) === 1) return reply;
  throw new CommandError(reply.errmsg ?? "The command failed.", reply);
}
