// Users and roles.

import { command, session } from "./api.js";
import { card, empty, failure, h, table } from "./dom.js";

const roles = (all) => all.map(({ role, db }) => [h("span", { class: "tag" }, `${role}@${db}`), " "]);

export default {
  id: "users",
  title: "Users",
  mount(root, context) {
    const abort = new AbortController();
    async function load() {
      if (!session.needsLogin) {
        root.append(h("div", { class: "failure" }, "Authorization is off: everybody who reaches the server may do everything. Start it with --auth (security.authorization: enabled)."));
      }
      const [{ users }, { roles: custom }] = await Promise.all([
        command("admin", { usersInfo: { forAllDBs: true } }, { signal: abort.signal }),
        command("admin", { rolesInfo: 1, showPrivileges: true }, { signal: abort.signal }),
      ]);
      const everywhere = [...custom];
      const { databases } = await command("admin", { listDatabases: 1, nameOnly: true }, { signal: abort.signal });
      for (const { name } of databases.filter((one) => one.name !== "admin")) {
        const reply = await command(name, { rolesInfo: 1, showPrivileges: true }, { signal: abort.signal });
        everywhere.push(...reply.roles);
      }
      context.subtitle.textContent = `${users.length} ${users.length === 1 ? "user" : "users"}, ${everywhere.length} ${everywhere.length === 1 ? "role" : "roles"} of this server`;
      root.append(users.length === 0
        ? empty("There are no users", "Create the first one with createUser, in Query as a command or in mongosh.")
        : card("Users", table([
          { title: "User", cell: (one) => h("span", { class: "strong" }, one.user, one.user === session.user && one.db === session.db && h("span", { class: "tag on" }, "you")) },
          { title: "Database", cell: (one) => one.db },
          { title: "Roles", class: "wide", cell: (one) => roles(one.roles) },
          { title: "Mechanisms", cell: (one) => one.mechanisms?.join(", ") },
          { title: "Only from", cell: (one) => one.authenticationRestrictions?.flatMap((each) => each.clientSource ?? []).join(", ") || null },
        ], users, { label: "Users" })));
      root.append(everywhere.length === 0
        ? empty("There are no roles of your own", "The built-in roles are always there.")
        : card("Roles", table([
          { title: "Role", cell: (one) => h("span", { class: "strong" }, one.role) },
          { title: "Database", cell: (one) => one.db },
          { title: "Inherits", class: "wide", cell: (one) => roles(one.roles) },
          { title: "Privileges", class: "wide", cell: (one) => (one.privileges ?? []).map(({ resource, actions }) =>
            h("p", {}, h("span", { class: "mono" }, resource.cluster ? "cluster" : resource.anyResource ? "everything" : `${resource.db || "*"}.${resource.collection || "*"}`), " ", h("span", { class: "quiet" }, actions.join(", ")))) },
        ], everywhere, { label: "Roles" })));
    }
    load().catch((error) => { if (error.name !== "AbortError") root.append(failure(error)); });
    return () => abort.abort();
  },
};
