// How the numbers came about.
import { h, number } from "./dom.js";
import { state, doc, picture, run, spanOf, mapOf } from "./state.js";

export function drawAbout() {
  const about = doc.methods[state.method];
  if (!about) return [];
  const settings = Object.entries(about.settings ?? {});
  const map = mapOf(state.method);
  const span = map?.values ? spanOf(state.method).span : null;
  const p = picture();
  const facts = [
    ["method", about.name === state.method ? about.name : `${state.method} (${about.name})`],
    ["paper", about.paper],
    ["settings", settings.length ? settings.map(([k, v]) => `${k}=${v === null ? "None" : Array.isArray(v) ? `(${v.join(", ")})` : v}`).join(", ") : "none"],
    ["explained", run()?.label],
    ["model", `${doc.model.name}, input ${doc.model.size.join(" x ")}, ${doc.model.classes} classes${doc.model.origin ? `, weights: ${doc.model.origin}` : ""}`],
    ["scores", span ? `${map.h} x ${map.w}, scale ${number(span[0])} to ${number(span[1])} over all pictures and classes of this page` : null],
    ["time", about.seconds === undefined ? null : `${number(about.seconds)} s; methods that share one pass share its time`],
    ["picture", p ? p.name : null],
    ["notes", (run()?.notes?.[state.method] ?? []).join("; ") || null],
    ["made by", `patchlight ${doc.version}, torch ${doc.torch}`],
  ];
  return [
    h("p", {}, about.summary),
    h("p", { class: "equation" }, h("code", {}, about.equation)),
    h("dl", {}, facts.filter(([, v]) => v).map(([k, v]) => [h("dt", {}, k), h("dd", {}, v)])),
  ];
}
