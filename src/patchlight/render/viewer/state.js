// What is shown, who is told when it changes, and the link that brings it back.
import { later } from "./dom.js";
import { decodeMap, decodeBlock } from "./decode.js";
import { limits, isSigned } from "./paint.js";

export const doc = JSON.parse(document.getElementById("document").textContent);
doc.pictures ??= [];
doc.methods ??= {};

export const state = {
  picture: 0,
  run: 0,
  method: null,
  pin: null, // [row, column] of a clicked patch
  cursor: [0, 0],
  hover: null,
  block: null,
  head: null, // null: mean of heads
  layer: "map", // or attention
  tab: "attention",
  removed: 0.2,
  region: new Set(),
  brush: false,
  view: { opacity: 0.85, sequential: "inferno", diverging: "coolwarm", sign: "auto", scale: "raw", smooth: true, grid: false },
  theme: "auto",
  shortcuts: true,
};

const drawers = new Set();
export const onChange = (draw) => drawers.add(draw);
const drawAll = later(() => {
  for (const draw of drawers) draw();
  writeLink();
});

export function change(values = {}) {
  Object.assign(state, values);
  drawAll();
}

export function changeView(values) {
  Object.assign(state.view, values);
  spans.clear();
  drawAll();
}

export const picture = () => doc.pictures[state.picture] ?? null;
export const run = () => picture()?.runs[state.run] ?? picture()?.runs[0] ?? null;
export const methodNames = () => Object.keys(doc.methods);

// What is large at first: a method that tells classes apart
export function favourite() {
  const telling = methodNames().filter((n) => !doc.methods[n].blind && !doc.methods[n].problem && doc.methods[n].family !== "baseline");
  return ["transformer_mm", "vtranm"].find((n) => telling.includes(n)) ?? telling[0] ?? methodNames()[0] ?? null;
}

// A method that is blind to the class has one map for all of them
export function mapOf(label, p = picture(), r = run()) {
  return r?.maps[label] ?? (doc.methods[label]?.blind ? p?.runs[0]?.maps[label] : null) ?? null;
}

const spans = new Map();
export const forgetSpans = () => spans.clear();

// One scale for each method, over all pictures and classes on the page
export function spanOf(label) {
  if (!spans.has(label)) {
    const maps = doc.pictures.flatMap((p) => p.runs.map((r) => r.maps[label])).filter((m) => m?.values);
    const { sign } = state.view;
    const signed = sign === "signed" || (sign === "auto" && maps.some(isSigned));
    spans.set(label, { span: limits(maps, signed, sign === "positive"), signed });
  }
  return spans.get(label);
}

export async function decodeRun(r) {
  const jobs = Object.entries(r.maps).map(async ([label, m]) => {
    if (!m.values) r.maps[label] = await decodeMap(m);
  });
  for (const rows of Object.values(r.insides ?? {}))
    for (const row of rows) for (const m of row.maps) if (!m.values) jobs.push(decodeMap(m).then((found) => Object.assign(m, found, { data: null })));
  await Promise.all(jobs);
}

export async function decodePicture(p) {
  p.image = new Image();
  p.image.src = p.src;
  await Promise.all([p.image.decode().catch(() => null), ...p.runs.map(decodeRun)]);
  if (p.attention) p.attention.blocks = await Promise.all(p.attention.blocks.map(decodeBlock));
}

// -- the link ---------------------------------------------------------------------------------------------------------
const KEPT = { p: "picture", r: "run", m: "method", t: "tab", l: "layer", b: "block", h: "head", k: "removed", pin: "pin" };
const VIEW = { o: "opacity", c: "sequential", d: "diverging", s: "sign", x: "scale", sm: "smooth", g: "grid" };
const extra = new Map(); // what the live part keeps in the link

export const keepInLink = (key, value) => (value ? extra.set(key, value) : extra.delete(key));

export function link() {
  const found = new URLSearchParams();
  for (const [key, name] of Object.entries(KEPT)) if (state[name] !== null && state[name] !== undefined) found.set(key, state[name]);
  for (const [key, name] of Object.entries(VIEW)) found.set(key, state.view[name]);
  for (const [key, value] of extra) found.set(key, value);
  return found.toString();
}

let lastLink = 0;
function writeLink() {
  if (performance.now() - lastLink < 300) return;
  lastLink = performance.now();
  try {
    history.replaceState(null, "", `#${link()}`);
  } catch {
    // browsers limit how often; the share button makes the link anew
  }
}

export function readLink() {
  const given = new URLSearchParams(location.hash.slice(1));
  const like = (old, text) =>
    typeof old === "number" || (old === null && /^\d+$/.test(text)) ? Number(text) : typeof old === "boolean" ? text === "true" : text;
  for (const [key, name] of Object.entries(KEPT)) {
    if (!given.has(key)) continue;
    const text = given.get(key);
    if (name === "pin") state.pin = /^\d+,\d+$/.test(text) ? text.split(",").map(Number) : null;
    else state[name] = like(state[name], text);
  }
  for (const [key, name] of Object.entries(VIEW)) if (given.has(key)) state.view[name] = like(state.view[name], given.get(key));
  state.view.opacity = Math.min(1, Math.max(0, state.view.opacity || 0));
  state.removed = Math.min(1, Math.max(0, state.removed || 0));
  return given;
}
