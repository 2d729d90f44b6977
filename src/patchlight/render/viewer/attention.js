// Where the clicked patch attends, at every block and head: from the file, or asked of the model.
import { h } from "./dom.js";
import { state, change, picture } from "./state.js";
import { attentionRow } from "./decode.js";
import { limits, paintMap } from "./paint.js";
import { live, askAttention } from "./live.js";

export const hasAttention = () => Boolean(picture()?.attention || (live() && picture()?.attends !== false));

// {cells: [{block, head, map}], ...} of the pinned patch, remembered until another is clicked
export function rows() {
  const p = picture();
  if (!state.pin || !hasAttention()) return null;
  const key = String(state.pin);
  if (p.rowsKey !== key) {
    p.rowsKey = key;
    p.rows = p.attention ? fromFile(p.attention, state.pin) : null;
    if (!p.attention) askAttention(p, state.pin, (found) => {
      if (p.rowsKey === key) p.rows = found;
      change();
    });
  }
  return p.rows;
}

function fromFile(attention, pin) {
  const cells = [];
  for (const block of attention.blocks) {
    const token = tokenOf(block, pin);
    const maps = Array.from({ length: block.heads }, (_, head) => attentionRow(block, head, token));
    maps.forEach((map, head) => attention.heads && cells.push({ block: block.index, head, map }));
    cells.push({ block: block.index, head: null, map: mean(maps) });
  }
  return finished(cells);
}

// Grids of later stages are coarser: the patch that holds the middle of the clicked one
function tokenOf(block, [r, c]) {
  const [rows, columns] = block.grid;
  const [R, C] = picture().grid ?? block.grid;
  const [y, x] = [Math.floor(((r + 0.5) * rows) / R), Math.floor(((c + 0.5) * columns) / C)];
  return block.tokens - rows * columns + Math.min(rows - 1, y) * columns + Math.min(columns - 1, x);
}

// Attention as the head reads it: the class token's row, or the mean of all rows where there is none
export function readRows(p) {
  if (live() && !p.readRows && p.attends !== false) {
    p.readRows = [];
    askAttention(p, null, (found) => {
      p.readRows = found?.cells.filter((c) => c.head === null).map((c) => ({ ...c.map, block: c.block })) ?? [];
      change();
    });
  }
  if (!p.attention) return p.readRows?.length ? { name: "attention, mean of heads", maps: p.readRows } : null;
  p.readRows ??= p.attention.blocks.map((block) => {
    const prefix = block.tokens - block.grid[0] * block.grid[1];
    const tokens = prefix ? [0] : Array.from({ length: block.tokens }, (_, t) => t);
    const heads = Array.from({ length: block.heads }, (_, head) => head);
    return { ...mean(tokens.flatMap((t) => heads.map((head) => attentionRow(block, head, t)))), block: block.index };
  });
  return { name: "attention, mean of heads", maps: p.readRows };
}

export function mean(maps) {
  const values = new Float32Array(maps[0].values.length);
  for (const m of maps) for (let i = 0; i < values.length; i++) values[i] += m.values[i] / maps.length;
  return { h: maps[0].h, w: maps[0].w, values, others: maps.reduce((s, m) => s + m.others / maps.length, 0) };
}

export function finished(cells) {
  const blocks = [...new Set(cells.map((c) => c.block))].sort((a, b) => a - b);
  const heads = Math.max(0, ...cells.map((c) => (c.head ?? -1) + 1));
  return { cells, blocks, heads, span: limits(cells.map((c) => c.map), false, true) };
}

const cellOf = (found, block, head) => found.cells.find((c) => c.block === block && c.head === head);

export function chosenCell() {
  const found = rows();
  if (!found?.cells.length) return null;
  const block = found.blocks.includes(state.block) ? state.block : found.blocks[found.blocks.length - 1];
  return cellOf(found, block, state.head) ?? cellOf(found, block, null) ?? found.cells[0];
}

export const attentionMap = () => chosenCell()?.map ?? null;
export function attentionSpan() {
  const map = attentionMap();
  return map ? limits([map], false, true) : [0, 1];
}

export function drawAttention() {
  const p = picture();
  if (!hasAttention()) return [h("p", { class: "hint" }, "No attention between patches is in this file, or the model has none to show.")];
  if (!state.pin) return [h("p", { class: "hint" }, "Click a patch of the picture, or move to it with the arrow keys and press Enter: this strip then shows where it attends, at every block and head.")];
  const found = rows();
  if (!found) return [h("p", { class: "hint" }, "Looking\u2026")];
  const cell = chosenCell();
  const others = cell?.map.others > 0.005 ? ` ${Math.round(100 * cell.map.others)} % of it goes to the class and register tokens.` : "";
  const where = cell ? `block ${cell.block + 1}, ${cell.head === null ? "mean of heads" : `head ${cell.head + 1}`}` : "";
  return [
    h("p", { class: "hint" }, "Patch in row ", h("b", {}, state.pin[0] + 1), ", column ", h("b", {}, state.pin[1] + 1), `: ${where}.${others}`),
    strip(p, found, cell),
    coverage(p, found),
  ];
}

function coverage(p, found) {
  const all = p.attention?.total ?? found.blocks.length;
  const parts = [];
  if (found.blocks.length < all) parts.push(`${found.blocks.length} of ${all} blocks`);
  if (p.attention && !p.attention.heads) parts.push("means over heads");
  return parts.length ? h("p", { class: "hint" }, `To stay small this file holds ${parts.join(", ")}; patchlight serve shows everything.`) : null;
}

// Blocks across, heads down, the mean of the heads first
function strip(p, found, cell) {
  const heads = [null, ...Array.from({ length: found.heads }, (_, k) => k)];
  const head = h("tr", {}, h("td", {}), found.blocks.map((b) => h("th", { scope: "col" }, b + 1)));
  const body = heads.map((k) =>
    h("tr", {}, h("th", { scope: "row" }, k === null ? "mean" : k + 1), found.blocks.map((b) => {
      const one = cellOf(found, b, k);
      return h("td", {}, one ? cellButton(p, found, one, cell) : "");
    })));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Blocks across, heads down" },
    h("table", { class: "strip", onkeydown: walk }, h("caption", { class: "unseen" }, "Attention of the patch: blocks across, heads down"), h("thead", {}, head), h("tbody", {}, body)));
}

function cellButton(p, found, one, chosen) {
  const on = one === chosen;
  const name = `block ${one.block + 1}, ${one.head === null ? "mean of heads" : `head ${one.head + 1}`}`;
  return h("button", {
    class: `cell${on ? " chosen" : ""}`,
    "aria-pressed": String(on),
    "aria-label": name,
    title: name,
    tabindex: on ? 0 : -1,
    "data-key": `cell-${one.block}-${one.head}`,
    onclick: () => change({ block: one.block, head: one.head, layer: "attention" }),
  }, small(p, found, one));
}

function small(p, found, one) {
  const side = found.heads > 8 ? 26 : 34;
  const view = { ...state.view, sign: "positive", opacity: 1, smooth: false };
  const canvas = h("canvas", { width: side * 2, height: Math.round((side * 2 * one.map.h) / one.map.w), "aria-hidden": "true", style: { width: `${side}px` } });
  paintMap(canvas.getContext("2d"), one.map, [0, 0, canvas.width, canvas.height], view, found.span, { solid: true });
  return canvas;
}

// Arrow keys walk over the table; only the chosen cell is a tab stop
function walk(event) {
  const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  const cell = chosenCell();
  if (!by || !cell) return;
  event.preventDefault();
  const found = rows();
  const heads = [null, ...Array.from({ length: found.heads }, (_, k) => k)];
  const b = found.blocks.indexOf(cell.block) + by[1];
  const k = heads.indexOf(cell.head) + by[0];
  const next = cellOf(found, found.blocks[Math.min(found.blocks.length - 1, Math.max(0, b))], heads[Math.min(heads.length - 1, Math.max(0, k))]);
  if (!next) return;
  change({ block: next.block, head: next.head, layer: "attention" });
  requestAnimationFrame(() => requestAnimationFrame(() => document.querySelector(`[data-key="cell-${next.block}-${next.head}"]`)?.focus()));
}
