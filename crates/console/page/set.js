// The replica set: its members, how far they are, and the elections.

import { command } from "./api.js";
import { card, empty, failure, h, table } from "./dom.js";
import { bytes, dateTime, duration, millis, number, whole } from "./format.js";

// Errors of a server that is in no set, and of one whose set is not initiated.
const NO_SET = [76, 94];

const CAUSES = {
  electionTimeout: "there was no primary",
  stepUpCmd: "step up, or handed over",
  priorityTakeover: "a higher priority",
  freezeTimeout: "the only voter",
};

const REASONS = {
  electionTimeout: "there was no primary",
  stepUpRequest: "it was asked to step up",
  stepUpRequestSkipDryRun: "the primary before it handed over",
  priorityTakeover: "it has a higher priority than the primary before it",
  singleNodePromptElection: "it is the only voter",
};

const date = (value) => (value === undefined ? null : dateTime(millis(value)));

export default {
  id: "set",
  title: "Replica set",
  mount(root, context) {
    const abort = new AbortController();
    const { signal } = abort;
    let timer = null;
    const body = h("div", { class: "view" });
    context.actions.append(h("button", { type: "button", "data-reload": "", onclick: () => tick() }, "Load again"));
    root.append(body);

    async function load() {
      let status;
      try {
        status = await command("admin", { replSetGetStatus: 1 }, { signal });
      } catch (error) {
        if (!NO_SET.includes(Number(error.code))) throw error;
        body.replaceChildren(empty("This server is in no replica set", "Start it with --replSet, and run rs.initiate() in mongosh."));
        return;
      }
      const { frond, electionMetrics } = await command("admin", { serverStatus: 1, metrics: 0, wiredTiger: 0 }, { signal });
      show(status, frond?.replicaSet ?? {}, electionMetrics ?? {});
    }

    async function tick() {
      clearTimeout(timer);
      try {
        if (!document.hidden) await load();
      } catch (error) {
        if (error.name === "AbortError") return;
        body.replaceChildren(failure(error));
      }
      if (!abort.signal.aborted) timer = setTimeout(tick, 2000);
    }

    function show(status, part, elections) {
      const fact = (title, value) => h("div", {}, h("dt", {}, title), h("dd", {}, value));
      const primary = status.members.find((one) => one.stateStr === "PRIMARY");
      const last = status.electionCandidateMetrics;
      const lag = (one) => part.members?.[one.name]?.lagSeconds;
      context.subtitle.textContent = `${status.set}, ${whole(status.members.length)} ${status.members.length === 1 ? "member" : "members"}`;
      const facts = [
        fact("Primary", primary?.name ?? h("span", { class: "warn strong" }, "none")),
        fact("Term", whole(number(status.term))),
        fact("Votes for a majority", whole(status.majorityVoteCount)),
        fact("Log kept", bytes(number(part.logBytes ?? NaN))),
        fact("Sent to members", bytes(number(part.messages?.bytesSent ?? NaN))),
        fact("Replies that waited", whole(number(part.waits?.num ?? NaN))),
      ];
      if (last) {
        facts.push(fact("Primary since", date(last.lastElectionDate) ?? "–"), fact("Elected because", REASONS[last.lastElectionReason] ?? last.lastElectionReason));
      }
      const causes = Object.entries(elections).filter(([, one]) => number(one?.called ?? 0) > 0);
      body.replaceChildren(
        card("Now", h("dl", { class: "facts" }, facts)),
        card("Members", table([
          { title: "Host", cell: (one) => h("span", { class: "strong" }, one.name, one.self && h("span", { class: "tag on" }, "this one")) },
          { title: "State", cell: (one) => h("span", { class: number(one.health) === 1 ? null : "warn strong" }, one.stateStr) },
          { title: "Lag", number: true, cell: (one) => (lag(one) === undefined ? null : `${whole(number(lag(one)))} s`) },
          { title: "Last write", class: "more", cell: (one) => date(one.optimeDate) },
          { title: "Answers in", number: true, rare: true, class: "more", cell: (one) => (one.pingMs === undefined ? null : `${whole(number(one.pingMs))} ms`) },
          { title: "Up for", number: true, class: "more", cell: (one) => duration(number(one.uptime) * 1e6) },
          { title: "Receives from", rare: true, class: "more", cell: (one) => one.syncSourceHost || null },
          { title: "Message", rare: true, cell: (one) => one.lastHeartbeatMessage || one.infoMessage || null },
        ], status.members, { label: "Members of the replica set" })),
        causes.length > 0
          ? card("Elections of this member", table([
            { title: "Cause", cell: ([name]) => CAUSES[name] ?? name },
            { title: "Stood", number: true, cell: ([, one]) => whole(number(one.called)) },
            { title: "Won", number: true, cell: ([, one]) => whole(number(one.successful)) },
          ], causes, { label: "Elections since the start of this server" }))
          : empty("This member has not stood for election since its start"));
    }

    tick();
    return () => { abort.abort(); clearTimeout(timer); };
  },
};
