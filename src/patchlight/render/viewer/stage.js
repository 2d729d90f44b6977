// The picture, large: a map or the attention of a clicked patch on it; mouse, touch and keys pick patches.
import { h, fill, number, say, $ } from "./dom.js";
import { state, change, picture, run, mapOf, spanOf, onChange } from "./state.js";
import { paintMap } from "./paint.js";
import { attentionMap, attentionSpan, hasAttention } from "./attention.js";

let base, top;
let painting = null; // adding or taking away while a region is brushed

export function makeStage() {
  base = h("canvas", { role: "img" });
  top = h("canvas", { "aria-hidden": "true" });
  const box = h("div", {
    class: "stage",
    tabindex: 0,
    role: "application",
    "aria-label": "Patches of the picture. Arrow keys move, Enter shows where a patch attends, Space takes it away.",
    "data-key": "stage",
    onpointermove: move,
    onpointerdown: press,
    onpointerup: () => (painting = null),
    onpointerleave: () => change({ hover: null }),
    onkeydown: key,
    onfocus: () => change(),
    onblur: () => change(),
  }, base, top);
  fill("stage", box);
  new ResizeObserver(() => change()).observe(box);
  onChange(drawStage);
}

export function gridOf() {
  if (state.layer === "attention" && hasAttention()) return attentionMap()?.grid ?? baseGrid();
  return baseGrid();
}

// The patches that are picked: those of a token map, or of the model
export function baseGrid() {
  const p = picture();
  const map = mapOf(state.method);
  if (map && map.h * map.w <= 4096) return [map.h, map.w];
  return p?.grid ?? p?.attention?.blocks[0]?.grid ?? [14, 14];
}

function place(p, width) {
  const ratio = width / p.size[0];
  return { ratio, width, height: p.size[1] * ratio, box: p.box.map((v) => v * ratio) };
}

function sized(canvas, width, height) {
  const dense = Math.min(2, devicePixelRatio || 1);
  const [w, hh] = [Math.round(width * dense), Math.round(height * dense)];
  if (canvas.width !== w || canvas.height !== hh) [canvas.width, canvas.height] = [w, hh];
  canvas.style.height = `${height}px`;
  const ctx = canvas.getContext("2d");
  ctx.setTransform(dense, 0, 0, dense, 0, 0);
  ctx.clearRect(0, 0, width, height);
  return ctx;
}

export function drawStage() {
  const p = picture();
  $("stage").hidden = $("reading").hidden = !p;
  if (!p) return;
  const room = base.parentElement.clientWidth;
  const width = Math.min(room, (window.innerHeight * 0.72 * p.size[0]) / p.size[1], 900);
  const at = place(p, Math.max(120, width));
  base.parentElement.style.height = `${at.height}px`;
  base.style.width = top.style.width = `${at.width}px`;
  paintPicture(sized(base, at.width, at.height), p, at);
  paintMarks(sized(top, at.width, at.height), at);
  base.setAttribute("aria-label", title());
  fill("reading", ...reading());
}

export function layerNow() {
  if (state.layer === "attention" && state.pin && hasAttention()) {
    const map = attentionMap();
    if (map) return { map, span: attentionSpan(), view: { ...state.view, sign: "positive" } };
  }
  const map = mapOf(state.method);
  return map?.values ? { map, span: spanOf(state.method).span, view: { ...state.view, sign: spanOf(state.method).signed ? "signed" : "positive" } } : null;
}

// Used by the stage and by the PNG export
export function paintPicture(ctx, p, at) {
  const { width, height, box } = at;
  ctx.drawImage(p.image, 0, 0, width, height);
  const [x0, y0, x1, y1] = box;
  ctx.fillStyle = "rgb(128 128 128 / .6)"; // nothing is known of what the model did not see
  ctx.beginPath();
  ctx.rect(0, 0, width, height);
  ctx.rect(x0, y0, x1 - x0, y1 - y0);
  ctx.fill("evenodd");
  const layer = layerNow();
  if (!layer) return;
  ctx.save();
  ctx.beginPath();
  ctx.rect(x0, y0, x1 - x0, y1 - y0);
  ctx.clip();
  paintMap(ctx, layer.map, [x0, y0, x1 - x0, y1 - y0], layer.view, layer.span);
  ctx.restore();
}

function paintMarks(ctx, at) {
  const [rows, columns] = baseGrid();
  const [x0, y0, x1, y1] = at.box;
  const [w, hh] = [(x1 - x0) / columns, (y1 - y0) / rows];
  if (state.view.grid) {
    ctx.strokeStyle = "rgb(255 255 255 / .35)";
    ctx.lineWidth = 1;
    ctx.beginPath();
    for (let i = 0; i <= columns; i++) ctx.moveTo(x0 + i * w, y0), ctx.lineTo(x0 + i * w, y1);
    for (let i = 0; i <= rows; i++) ctx.moveTo(x0, y0 + i * hh), ctx.lineTo(x1, y0 + i * hh);
    ctx.stroke();
  }
  ctx.fillStyle = "rgb(20 20 20 / .72)";
  for (const k of state.region) ctx.fillRect(x0 + (k % columns) * w, y0 + Math.floor(k / columns) * hh, w, hh);
  const frame = ([r, c], dash) => {
    for (const [colour, wide] of [["#000", 4], ["#fff", 2]]) {
      ctx.strokeStyle = colour;
      ctx.lineWidth = wide;
      ctx.setLineDash(dash && wide === 2 ? [4, 3] : []);
      ctx.strokeRect(x0 + c * w, y0 + r * hh, w, hh);
    }
    ctx.setLineDash([]);
  };
  if (document.activeElement === top.parentElement) frame(state.cursor, true);
  if (state.hover) frame(state.hover, true);
  if (state.pin) frame(state.pin, false);
}

function patchAt(event) {
  const p = picture();
  const rect = base.getBoundingClientRect();
  const at = place(p, rect.width);
  const [rows, columns] = baseGrid();
  const [x0, y0, x1, y1] = at.box;
  const c = Math.floor(((event.clientX - rect.left - x0) / (x1 - x0)) * columns);
  const r = Math.floor(((event.clientY - rect.top - y0) / (y1 - y0)) * rows);
  return r >= 0 && c >= 0 && r < rows && c < columns ? [r, c] : null;
}

function move(event) {
  if (!picture()) return;
  const hover = patchAt(event);
  if (painting !== null && hover) paintRegion(hover);
  if (String(hover) !== String(state.hover)) change({ hover });
}

function press(event) {
  const at = patchAt(event);
  if (!at) return;
  if (state.brush) {
    event.preventDefault();
    top.parentElement.setPointerCapture?.(event.pointerId);
    painting = !state.region.has(at[0] * baseGrid()[1] + at[1]);
    paintRegion(at);
  } else pick(at);
}

function paintRegion([r, c]) {
  const region = new Set(state.region);
  region[painting ? "add" : "delete"](r * baseGrid()[1] + c);
  change({ region, cursor: [r, c] });
}

// The first view shows where the highest patch attends, so that the strip explains itself
export function pinHighest() {
  const map = mapOf(state.method);
  if (state.pin || !map?.values || !hasAttention() || map.h * map.w > 4096) return;
  const k = map.values.indexOf(Math.max(...map.values));
  state.pin = state.cursor = [Math.floor(k / map.w), k % map.w];
}

// A second click on the same patch lets go of it
export function pick(at) {
  const same = String(at) === String(state.pin);
  change({ pin: same ? null : at, cursor: at, layer: same || !hasAttention() ? "map" : "attention", tab: same || !hasAttention() ? state.tab : "attention" });
}

const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const [rows, columns] = baseGrid();
  const [r, c] = state.cursor;
  if (MOVES[event.key]) {
    const [dr, dc] = MOVES[event.key];
    const cursor = [Math.min(rows - 1, Math.max(0, r + dr)), Math.min(columns - 1, Math.max(0, c + dc))];
    change({ cursor, hover: null });
    requestAnimationFrame(() => say($("reading").textContent));
  } else if (event.key === "Enter") pick([Math.min(r, rows - 1), Math.min(c, columns - 1)]);
  else if (event.key === " ") {
    painting = !state.region.has(r * columns + c);
    paintRegion([r, c]);
    painting = null;
  } else return;
  event.preventDefault();
}

// The score under the pointer or the cursor, in words
function reading() {
  const at = state.hover ?? (document.activeElement === top.parentElement ? state.cursor : state.pin);
  const layer = layerNow();
  if (!layer) return ["No map of this method for this class."];
  if (!at) return [state.brush ? "Drag over patches to take them away." : "Point at a patch to read its score, click it to see where it attends."];
  const [rows, columns] = baseGrid();
  const [mr, mc] = [Math.floor(((at[0] + 0.5) * layer.map.h) / rows), Math.floor(((at[1] + 0.5) * layer.map.w) / columns)];
  const value = valueAt(layer.map, at, [rows, columns]);
  const better = layer.map.values.reduce((n, v) => n + (v > layer.map.values[mr * layer.map.w + mc] ? 1 : 0), 0);
  const share = Math.round(100 * (1 - better / layer.map.values.length));
  const what = state.layer === "attention" && state.pin && hasAttention() ? "attention" : state.method;
  return [`row ${at[0] + 1}, column ${at[1] + 1}: `, h("b", {}, `${what} ${number(value)}`), better ? `, higher than ${share} % of the map` : ", the highest"];
}

// Of a map of pixels the mean of the patch
function valueAt(map, [r, c], [rows, columns]) {
  const [y0, y1] = [Math.floor((r * map.h) / rows), Math.max(Math.floor((r * map.h) / rows) + 1, Math.floor(((r + 1) * map.h) / rows))];
  const [x0, x1] = [Math.floor((c * map.w) / columns), Math.max(Math.floor((c * map.w) / columns) + 1, Math.floor(((c + 1) * map.w) / columns))];
  let sum = 0;
  for (let y = y0; y < y1; y++) for (let x = x0; x < x1; x++) sum += map.values[y * map.w + x];
  return sum / ((y1 - y0) * (x1 - x0));
}

export function title() {
  const p = picture();
  if (state.layer === "attention" && state.pin && hasAttention())
    return `${p.name}: where the patch in row ${state.pin[0] + 1}, column ${state.pin[1] + 1} attends`;
  return `${p.name}: ${state.method} for ${run()?.label ?? ""}`;
}
