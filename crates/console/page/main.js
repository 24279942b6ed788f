// The frame of the page: login, navigation, theme, keys.

import { loadSession, logIn, logOut, session, whenLoginNeeded } from "./api.js";
import { failure, h, icon, toast } from "./dom.js";
import overview from "./overview.js";
import collections from "./collections.js";
import query from "./query.js";
import operations from "./operations.js";
import slow from "./slow.js";
import users from "./users.js";
import changes from "./changes.js";
import backups from "./backups.js";
import set from "./set.js";

const VIEWS = [overview, collections, query, operations, slow, users, changes, backups, set];

const app = document.getElementById("app");
let unmount = () => {};

// ----- theme

const THEMES = ["auto", "light", "dark"];

function theme() {
  try { return localStorage.getItem("theme") ?? "auto"; } catch { return "auto"; }
}

function setTheme(name) {
  try { localStorage.setItem("theme", name); } catch { /* It is not kept. */ }
  document.documentElement.dataset.theme = name;
}

function nextTheme() {
  const name = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  setTheme(name);
  toast(name === "auto" ? "Colours follow the system" : `Colours: ${name}`);
}

// ----- login

function showLogin(message) {
  unmount();
  unmount = () => {};
  const problem = h("div", { role: "alert" }, message ? h("p", { class: "failure" }, message) : null);
  const user = h("input", { id: "user", name: "username", autocomplete: "username", required: true, autocapitalize: "none", spellcheck: "false" });
  const password = h("input", { id: "password", name: "password", type: "password", autocomplete: "current-password", required: true });
  const db = h("input", { id: "db", name: "db", value: "admin", required: true, spellcheck: "false", autocapitalize: "none" });
  const button = h("button", { type: "submit", class: "primary" }, "Log in");
  const form = h("form", { class: "login card", onsubmit: async (event) => {
    event.preventDefault();
    button.disabled = true;
    problem.replaceChildren();
    try {
      await logIn(user.value, db.value, password.value);
      showApp();
    } catch (error) {
      problem.replaceChildren(h("p", { class: "failure" }, error.message));
      password.value = "";
      password.focus();
    } finally {
      button.disabled = false;
    }
  } },
  h("div", { class: "brand" }, icon("leaf"), h("h1", {}, "Frond")),
  h("p", { class: "quiet" }, location.host),
  problem,
  h("label", { for: "user" }, "User"), user,
  h("label", { for: "password" }, "Password"), password,
  h("label", { for: "db" }, "Database of the user"), db,
  button);
  app.replaceChildren(h("main", { id: "main", class: "login-page" }, form));
  user.focus();
}

// ----- frame

function route() {
  const [, id, ...rest] = location.hash.split("/").map(decodeURIComponent);
  return { view: VIEWS.find((one) => one.id === id) ?? VIEWS[0], rest };
}

export function go(id, ...rest) {
  location.hash = ["#", id, ...rest].map((part, at) => (at === 0 ? part : encodeURIComponent(part))).join("/");
}

function showApp() {
  const links = VIEWS.map((view, at) => h("a", { href: `#/${view.id}`, "data-view": view.id, title: `${view.title} (key ${at + 1})` }, icon(view.id), h("span", {}, view.title)));
  const account = session.user
    ? h("button", { type: "button", class: "plain", title: "Log out", onclick: async () => { try { await logOut(); } catch { /* The session has ended. */ } showLogin(); } }, icon("exit"), h("span", {}, session.user))
    : null;
  const heading = h("h1", { tabindex: "-1" });
  const subtitle = h("span", { class: "quiet subtitle" });
  const actions = h("div", { class: "actions" });
  const body = h("div", { class: "view" });
  app.replaceChildren(h("div", { class: "frame" },
    h("header", { class: "side" },
      h("a", { class: "brand", href: "#/overview", "aria-label": "Frond, overview" }, icon("leaf"), h("span", {}, "Frond")),
      h("nav", { "aria-label": "Views" }, links),
      h("div", { class: "foot" },
        account,
        h("button", { type: "button", class: "plain", title: "Light, dark or as the system (key t)", onclick: nextTheme }, icon("theme"), h("span", {}, "Colours")),
        h("button", { type: "button", class: "plain", title: "Keys (key ?)", onclick: showKeys }, icon("help"), h("span", {}, "Keys")))),
    h("main", { id: "main" },
      h("div", { class: "view-head" }, h("div", { class: "titles" }, heading, subtitle), actions),
      body)));

  let first = true;
  const show = () => {
    const { view, rest } = route();
    unmount();
    unmount = () => {};
    for (const link of links) {
      if (link.dataset.view === view.id) { link.setAttribute("aria-current", "page"); link.scrollIntoView({ block: "nearest", inline: "center" }); } else link.removeAttribute("aria-current");
    }
    document.title = `${view.title} · Frond`;
    heading.textContent = view.title;
    subtitle.textContent = "";
    actions.replaceChildren();
    body.replaceChildren();
    body.dataset.view = view.id;
    try {
      unmount = view.mount(body, { rest, actions, subtitle, go }) ?? (() => {});
    } catch (error) {
      body.replaceChildren(failure(error));
    }
    if (!first) heading.focus({ preventScroll: true });
    first = false;
    window.scrollTo(0, 0);
  };
  window.onhashchange = show;
  show();
}

function showKeys() {
  if (document.querySelector("dialog[open]")) return;
  const keys = [
    ...VIEWS.map((view, at) => [String(at + 1), view.title]),
    ["Ctrl Enter", "Run the query"], ["r", "Load again"], ["t", "Light, dark, as the system"], ["?", "These keys"], ["Esc", "Close"],
  ];
  const dialog = h("dialog", { "aria-labelledby": "keys-title", onclose: () => dialog.remove() },
    h("h2", { id: "keys-title" }, "Keys"),
    h("dl", { class: "keys-list" }, keys.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    h("div", { class: "row end" }, h("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  document.body.append(dialog);
  dialog.showModal();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, dialog") || !document.querySelector(".frame")) return;
  const view = VIEWS[Number(event.key) - 1];
  if (view) go(view.id);
  else if (event.key === "t") nextTheme();
  else if (event.key === "?") showKeys();
  else if (event.key === "r") document.querySelector("[data-reload]")?.click();
  else return;
  event.preventDefault();
});

setTheme(theme());
whenLoginNeeded(() => { if (session.needsLogin && !document.querySelector(".login")) showLogin("The session has ended. Log in again."); });

async function start() {
  try {
    const { needsLogin, token } = await loadSession();
    if (needsLogin && !token) showLogin();
    else showApp();
  } catch (error) {
    app.replaceChildren(h("main", { id: "main", class: "login-page" }, failure(error)));
    setTimeout(start, 3000);
  }
}

start();
