// Events of the driver, which tests in the unified format observe, wait for, count and expect.

import { BSON } from 'mongodb';

import { matches } from './unified_match.mjs';

/** A copy as the server gets it. */
const copy = (document) => document && BSON.deserialize(BSON.serialize(document, { ignoreUndefined: true }));

/** The format's names of events, with its type of them and the driver's name. */
const EVENTS = {
  commandStartedEvent: ['command', 'commandStarted'],
  commandSucceededEvent: ['command', 'commandSucceeded'],
  commandFailedEvent: ['command', 'commandFailed'],
  poolReadyEvent: ['cmap', 'connectionPoolReady'],
  poolClearedEvent: ['cmap', 'connectionPoolCleared'],
  connectionCreatedEvent: ['cmap', 'connectionCreated'],
  connectionReadyEvent: ['cmap', 'connectionReady'],
  connectionClosedEvent: ['cmap', 'connectionClosed'],
  connectionCheckOutStartedEvent: ['cmap', 'connectionCheckOutStarted'],
  connectionCheckOutFailedEvent: ['cmap', 'connectionCheckOutFailed'],
  connectionCheckedOutEvent: ['cmap', 'connectionCheckedOut'],
  connectionCheckedInEvent: ['cmap', 'connectionCheckedIn'],
  serverDescriptionChangedEvent: ['sdam', 'serverDescriptionChanged'],
  serverHeartbeatStartedEvent: ['sdam', 'serverHeartbeatStarted'],
  serverHeartbeatSucceededEvent: ['sdam', 'serverHeartbeatSucceeded'],
  serverHeartbeatFailedEvent: ['sdam', 'serverHeartbeatFailed'],
  topologyOpeningEvent: ['sdam', 'topologyOpening'],
  topologyDescriptionChangedEvent: ['sdam', 'topologyDescriptionChanged'],
  topologyClosedEvent: ['sdam', 'topologyClosed'],
};

/** What the format has of a description of a server or a topology. */
const described = (description) => description && { type: description.type };

/** The fields that tests compare. The driver may change its objects later. */
const FIELDS = {
  command: ({ commandName, databaseName, command, reply }) => ({ commandName, databaseName, command: copy(command), reply: copy(reply) }),
  cmap: ({ interruptInUseConnections, reason }) => ({ interruptInUseConnections, reason }),
  sdam: ({ awaited, previousDescription, newDescription }) => ({
    awaited, previousDescription: described(previousDescription), newDescription: described(newDescription),
  }),
};

/** Records the observed events of a client; `{ kind, type, event }` each. The names of those that are unknown come back. */
export function observe(client, names, ignoredCommands) {
  const seen = [];
  const ignored = new Set(['configureFailPoint', ...ignoredCommands]);
  const unknown = names.filter((name) => !EVENTS[name]);
  for (const kind of names.filter((name) => EVENTS[name])) {
    const [type, name] = EVENTS[kind];
    client.on(name, (event) => {
      if (type !== 'command' || !ignored.has(event.commandName)) seen.push({ kind, type, event: FIELDS[type](event) });
    });
  }
  return { seen, unknown };
}

/** The number of events that match one that a test describes. */
export function count(seen, expected) {
  const [[kind, fields]] = Object.entries(expected);
  return seen.filter((one) => one.kind === kind && matches(fields, one.event)).length;
}
