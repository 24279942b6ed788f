// Logs in with each connection string of a file, as login.py describes, in mongosh.
const { readFileSync } = require('node:fs');

function attempt({ name, uri }) {
  try {
    const own = connect(uri).getSiblingDB('own');
    const status = own.runCommand({ connectionStatus: 1 });
    own.c.findOne();
    return { name, users: status.authInfo.authenticatedUsers.map((user) => `${user.user}@${user.db}`) };
  } catch (error) {
    return { name, error: `${error.code ?? ''} ${error.message}` };
  }
}

for (const one of JSON.parse(readFileSync(process.env.CASES, 'utf8'))) print(JSON.stringify(attempt(one)));
