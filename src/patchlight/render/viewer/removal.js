// The picture taken away patch by patch, what the model says on the way, and what it says without a painted region.
import { h, percent, number, say } from "./dom.js";
import { state, change, picture, run, mapOf } from "./state.js";
import { decodeOrder } from "./decode.js";
import { live, askCurves, askScores } from "./live.js";
import { baseGrid } from "./stage.js";

let side = "deletion";
let timer = null;

export function curvesOf(name) {
  return run()?.curves?.[name] ?? null;
}

export function drawRemoval() {
  const p = picture();
  const curves = curvesOf(state.method);
  if (!curves && live() && mapOf(state.method)?.values) askCurves(p, run(), state.method);
  if (!curves) return [h("p", { class: "hint" }, why())];
  const count = Math.round(state.removed * curves.grid[0] * curves.grid[1]);
  const at = nearest(curves.counts, count);
  return [
    h("div", { class: "controls" },
      h("button", { class: "small", "data-key": "play", "aria-pressed": String(timer !== null), onclick: play }, timer === null ? "\u25b6 Take away" : "\u275a\u275a Stop"),
      segmented(),
      h("label", { class: "slider" }, h("span", {}, `top ${Math.round(100 * state.removed)} % of the patches`),
        h("input", { type: "range", min: 0, max: 100, value: Math.round(100 * state.removed), "data-key": "removed", "aria-label": "Share of the patches", oninput: (e) => stop() || change({ removed: e.target.value / 100 }) }))),
    h("div", { class: "removal" },
      h("figure", {}, removedPicture(p, curves, count), h("figcaption", {}, side === "deletion" ? "The highest patches gone" : "Only the highest patches")),
      h("figure", { class: "chart" }, chart(curves, at)),
      h("figure", { class: "says" }, says(p, curves, at))),
    h("p", { class: "hint" }, "Patches are removed in the order of the map and painted in the mean colour that the model was normalised by. Lower deletion and higher insertion areas: the map found what the model uses."),
  ];
}

function why() {
  if (live()) return mapOf(state.method)?.values ? "The model is being asked\u2026" : "The curves need a map first.";
  const first = picture()?.runs[0];
  if (first?.curves?.[state.method]) return "This file holds the curves of the class that was explained first. Choose it in the list of classes to see them.";
  return "No curves are in this file. Write it with curves=True, or use patchlight serve.";
}

const nearest = (counts, count) => counts.reduce((best, c, i) => (Math.abs(c - count) < Math.abs(counts[best] - count) ? i : best), 0);

function segmented() {
  return h("div", { class: "segmented", role: "group", "aria-label": "Which way" },
    ["deletion", "insertion"].map((name) => h("button", { "aria-pressed": String(side === name), "data-key": `side-${name}`, onclick: () => ((side = name), change()) }, name)));
}

function stop() {
  if (timer !== null) cancelAnimationFrame(timer);
  timer = null;
}

// From nothing to everything in four seconds, or step by step for those who want less motion
function play() {
  if (timer !== null) return stop(), change();
  const began = performance.now() - (state.removed >= 1 ? 0 : state.removed * 4000);
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const tick = (now) => {
    const share = Math.min(1, Math.max(0, (now - began) / 4000));
    timer = share < 1 && state.tab === "removal" ? requestAnimationFrame(tick) : null;
    change({ removed: calm ? Math.floor(share * 5) / 5 : share });
  };
  timer = requestAnimationFrame(tick);
}

function removedPicture(p, curves, count) {
  const order = (curves.ranks ??= decodeOrder(curves.order));
  const gone = new Uint8Array(order.length).fill(side === "deletion" ? 0 : 1);
  for (let k = 0; k < count; k++) gone[order[k]] = side === "deletion" ? 1 : 0;
  return withoutPatches(p, gone, curves.grid, 176);
}

export function withoutPatches(p, gone, [rows, columns], side_) {
  const [x0, y0, x1, y1] = p.box;
  const ratio = (side_ * 2) / Math.max(x1 - x0, y1 - y0);
  const canvas = h("canvas", { width: Math.round((x1 - x0) * ratio), height: Math.round((y1 - y0) * ratio), role: "img", "aria-label": "The picture with patches taken away" });
  const ctx = canvas.getContext("2d");
  ctx.drawImage(p.image, -x0 * ratio, -y0 * ratio, p.size[0] * ratio, p.size[1] * ratio);
  ctx.fillStyle = `rgb(${p.fill.join(",")})`;
  const [w, hh] = [canvas.width / columns, canvas.height / rows];
  gone.forEach((g, k) => g && ctx.fillRect((k % columns) * w - 0.25, Math.floor(k / columns) * hh - 0.25, w + 0.5, hh + 0.5));
  return canvas;
}

export function area(counts, values) {
  const last = counts[counts.length - 1] || 1;
  let sum = 0;
  for (let i = 1; i < counts.length; i++) sum += ((values[i] + values[i - 1]) / 2) * ((counts[i] - counts[i - 1]) / last);
  return sum;
}

const W = 360, H = 190, L = 34, B = 24, T = 8, R = 8;

function chart(curves, at) {
  const all = [...curves.deletion.value, ...curves.insertion.value];
  const low = Math.min(0, ...all), high = Math.max(low + 0.05, ...all);
  const last = curves.counts[curves.counts.length - 1] || 1;
  const x = (c) => L + ((W - L - R) * c) / last;
  const y = (v) => H - B - ((H - B - T) * (v - low)) / (high - low);
  const path = (counts, values) => counts.map((c, i) => `${i ? "L" : "M"}${x(c).toFixed(1)},${y(values[i]).toFixed(1)}`).join("");
  const drawn = (name) => {
    const values = curves[name].value;
    const known = values.length;
    return h("path", { d: path(curves.counts.slice(0, known), values), class: `curve ${name}${side === name ? " on" : ""}` });
  };
  const others = Object.entries(run().curves ?? {}).filter(([n]) => n !== state.method).map(([, c]) =>
    c[side].value.length === c.counts.length ? h("path", { d: c.counts.map((k, i) => `${i ? "L" : "M"}${x((k / c.counts[c.counts.length - 1]) * last).toFixed(1)},${y(c[side].value[i]).toFixed(1)}`).join(""), class: "curve other" }) : null);
  const value = curves[side].value[at];
  const areas = ["deletion", "insertion"].map((n) => `${n} ${curves[n].value.length === curves.counts.length ? number(area(curves.counts, curves[n].value)) : "\u2026"}`);
  const ticks = [low, (low + high) / 2, high];
  return [
    h("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Probability against the share of patches; areas: ${areas.join(", ")}` },
      ticks.map((t) => h("g", {}, h("line", { x1: L, x2: W - R, y1: y(t), y2: y(t), class: "rule" }), h("text", { x: L - 5, y: y(t) + 4, class: "tick", "text-anchor": "end" }, number(t)))),
      [0, 0.5, 1].map((t) => h("text", { x: x(t * last), y: H - 7, class: "tick", "text-anchor": t === 1 ? "end" : t ? "middle" : "start" }, `${100 * t} %`)),
      others, drawn("deletion"), drawn("insertion"),
      value === undefined ? null : [h("line", { x1: x(curves.counts[at]), x2: x(curves.counts[at]), y1: T, y2: H - B, class: "cursor" }), h("circle", { cx: x(curves.counts[at]), cy: y(value), r: 4.5, class: `dot ${side}` })]),
    h("figcaption", { class: "legend" }, ["deletion", "insertion"].map((n, k) => h("span", {}, h("i", { class: `key ${n}` }), `${n}, area `, h("b", {}, areas[k].split(" ")[1]))), others.some(Boolean) ? h("span", {}, h("i", { class: "key other" }), "other methods") : null),
  ];
}

function says(p, curves, at) {
  const top = curves[side].top[at];
  if (!top) return [h("figcaption", {}, "\u2026")];
  return [
    h("figcaption", {}, `What the model then says (${curves.counts[at]} of ${curves.counts[curves.counts.length - 1]} patches)`),
    classBars(p, top),
  ];
}

export function classBars(p, top) {
  const target = run().target;
  return h("ul", { class: "classes small" }, top.map(([index, share]) =>
    h("li", {}, h("span", { class: `class${index === target ? " target" : ""}` },
      h("span", { class: "bar", style: { "--share": `${100 * share}%` } }), h("span", { class: "label" }, (p.labels[index] ?? `class ${index}`).replaceAll("_", " ")), h("span", { class: "share" }, percent(share))))));
}

// -- a painted region -------------------------------------------------------------------------------------------------
export function drawRegion() {
  const p = picture();
  const [rows, columns] = baseGrid();
  const size = state.region.size;
  const controls = h("div", { class: "controls" },
    h("button", { class: "small", "aria-pressed": String(state.brush), "data-key": "brush", onclick: () => change({ brush: !state.brush }) }, "Brush"),
    h("button", { class: "small", disabled: !size, "data-key": "clear", onclick: () => change({ region: new Set() }) }, "Clear"),
    h("button", { class: "small", disabled: !size, "data-key": "invert", onclick: () => change({ region: new Set(Array.from({ length: rows * columns }, (_, k) => k).filter((k) => !state.region.has(k))) }) }, "Invert"),
    h("span", { class: "hint" }, size ? `${size} of ${rows * columns} patches` : "Brush over the picture, or press Space on a patch."));
  if (!live()) return [controls, h("p", { class: "hint" }, "What the model says without the region needs the live model: patchlight serve.")];
  if (!size) return [controls];
  const key = `${state.picture}/${state.run}/${rows}x${columns}/${[...state.region].sort((a, b) => a - b)}`;
  if (p.regionKey !== key) {
    p.regionKey = key;
    askScores(p, run(), [rows, columns], [[...state.region]], (found) => {
      if (p.regionKey !== key) return;
      p.without = found;
      say(`Without the region: ${percent(found.value[0])}`);
      change();
    });
  }
  const gone = new Uint8Array(rows * columns);
  for (const k of state.region) gone[k] = 1;
  const before = p.classes.find((c) => c[0] === run().target)?.[2];
  const answer = p.without
    ? [h("figcaption", {}, `${p.labels[run().target] ?? run().target}: `, before === undefined ? "" : `${percent(before)} \u2192 `, h("b", {}, percent(Math.max(0, p.without.value[0]))), " without it"), classBars(p, p.without.top[0])]
    : [h("figcaption", {}, "The model is being asked\u2026")];
  return [controls, h("div", { class: "removal" }, h("figure", {}, withoutPatches(p, gone, [rows, columns], 176), h("figcaption", {}, "What the model is shown")), h("figure", { class: "says" }, answer))];
}
