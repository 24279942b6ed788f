// A plan as a tree of its operators, with what each one did.

import { h, s } from "./dom.js";
import { duration, inline, percent, whole } from "./format.js";

// One shape for the stages of a find and of a pipeline: {name, detail, figures, millis, children}.
function fromStage(stage) {
  const children = [stage.inputStage, ...(stage.inputStages ?? []), stage.outerStage, stage.innerStage].filter(Boolean).map(fromStage);
  const detail = [];
  if (stage.indexName) detail.push(stage.indexName);
  if (stage.sortPattern) detail.push(`by ${inline(stage.sortPattern)}`);
  if (stage.limitAmount) detail.push(`limit ${stage.limitAmount}`);
  if (stage.skipAmount) detail.push(`skip ${stage.skipAmount}`);
  if (stage.direction === "backward") detail.push("backward");
  if (stage.transformBy) detail.push(inline(stage.transformBy));
  const lines = [];
  if (stage.indexBounds) lines.push(Object.entries(stage.indexBounds).map(([name, bounds]) => `${name}: ${bounds.join(", ")}`).join("  "));
  if (stage.filter) lines.push(`filter ${inline(stage.filter, 200)}`);
  return {
    name: stage.stage,
    detail: detail.join(", "),
    lines,
    figures: {
      returned: stage.nReturned,
      "keys examined": stage.keysExamined,
      "documents examined": stage.docsExamined,
      works: stage.works,
      "memory": stage.totalDataSizeSorted,
      spills: stage.usedDisk ? stage.spills ?? "yes" : undefined,
    },
    millis: stage.executionTimeMillisEstimate,
    children,
  };
}

function fromPipeline(stages) {
  let below = null;
  for (const stage of stages) {
    const name = Object.keys(stage)[0];
    if (name === "$cursor") {
      const { executionStats, queryPlanner } = stage.$cursor;
      below = fromStage(executionStats?.executionStages ?? queryPlanner.winningPlan);
      continue;
    }
    below = {
      name,
      detail: inline(stage[name], 90),
      lines: [],
      figures: { returned: stage.nReturned, "memory": stage.maxAccumulatorMemoryUsageBytes, spills: stage.usedDisk ? stage.spills ?? "yes" : undefined },
      millis: stage.executionTimeMillisEstimate,
      children: below ? [below] : [],
    };
  }
  return below;
}

// The sentence that a person would say about the plan.
function verdict(stats, tree, isPipeline) {
  if (!stats) return null;
  const names = [];
  const walk = (node) => { names.push(node.name); node.children.forEach(walk); };
  walk(tree);
  const returned = stats.nReturned;
  const read = `${whole(stats.totalKeysExamined)} keys and ${whole(stats.totalDocsExamined)} documents are read`;
  const docs = stats.totalDocsExamined;
  if (names.includes("COLLSCAN")) return ["warn", `The whole collection is read: ${whole(docs)} documents for ${whole(returned)} results. An index on the fields of the filter would help.`];
  if (names.includes("IDHACK") || docs === 0) return ["", docs === 0 && stats.totalKeysExamined > 0 ? "The index answers alone: no document is read." : "One look-up by _id."];
  if (docs > 10 * Math.max(returned, 1) && docs > 100) return ["warn", `${whole(docs)} documents are read for ${whole(returned)} results. An index with more of the fields of the filter, or the order of the sort, would read fewer.`];
  return ["", isPipeline ? `${read} for ${whole(returned)} that the stages see.` : `${read} for ${whole(returned)} results.`];
}

function draw(node, total) {
  const own = node.millis === undefined ? undefined : Math.max(0, node.millis - Math.max(0, ...node.children.map((one) => one.millis ?? 0)));
  const share = total > 0 && own !== undefined ? own / total : 0;
  const isHot = node.name === "COLLSCAN" || share > 0.5;
  const figures = Object.entries(node.figures).filter(([, value]) => value !== undefined)
    .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, typeof value === "number" ? whole(value) : value)));
  if (own !== undefined) figures.push(h("div", {}, h("dt", {}, "own time"), h("dd", {}, `${duration(own * 1000)}${total > 0 ? ` (${percent(share)})` : ""}`)));
  return h("li", { role: "treeitem", "aria-expanded": node.children.length > 0 ? "true" : null },
    h("div", { class: `stage${isHot ? " hot" : ""}`, "data-stage": node.name },
      h("div", { class: "stage-head" }, h("span", { class: `stage-name${node.name === "COLLSCAN" ? " warn" : ""}` }, node.name), h("span", { class: "quiet small" }, node.detail)),
      h("dl", {}, figures),
      node.lines.map((line) => h("p", { class: "mono" }, line)),
      total > 0 && h("div", { class: "bar" }, s("svg", { viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" }, s("rect", { class: isHot ? "hot" : null, width: Math.max(share * 100, 0.5), height: 4 })))),
    node.children.length > 0 && h("ul", { role: "group" }, node.children.map((one) => draw(one, total))));
}

export function drawPlan(reply) {
  const inCursor = reply.stages?.find((stage) => stage.$cursor)?.$cursor;
  const stats = reply.executionStats ?? inCursor?.executionStats;
  const tree = reply.stages ? fromPipeline(reply.stages) : fromStage(reply.executionStats?.executionStages ?? reply.queryPlanner.winningPlan);
  const total = Math.max(tree.millis ?? 0, stats?.executionTimeMillis ?? 0);
  const said = verdict(stats, tree, Boolean(reply.stages));
  const fact = (title, value) => h("div", {}, h("dt", {}, title), h("dd", {}, value));
  const planner = reply.queryPlanner ?? inCursor?.queryPlanner ?? {};
  return [
    stats && h("dl", { class: "facts" },
      fact("Returned", whole(tree.figures.returned ?? stats.nReturned)), fact("Keys examined", whole(stats.totalKeysExamined)),
      fact("Documents examined", whole(stats.totalDocsExamined)), fact("Time", duration(total * 1000)),
      planner.rejectedPlans?.length > 0 && fact("Rejected plans", whole(planner.rejectedPlans.length))),
    said && h("p", { class: `verdict ${said[0]}` }, said[1]),
    h("div", { class: "scroll-x" }, h("ul", { class: "plan", role: "tree", "aria-label": "Operators of the plan" }, draw(tree, total))),
  ];
}
