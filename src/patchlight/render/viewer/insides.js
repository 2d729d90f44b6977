// What went on inside the method, block by block.
import { h, number } from "./dom.js";
import { state, picture, run } from "./state.js";
import { limits, isSigned, paintMap } from "./paint.js";
import { readRows } from "./attention.js";

export function drawInsides() {
  const p = picture();
  const found = run()?.insides?.[state.method];
  const attention = readRows(p);
  if (!found?.length) return [h("p", { class: "hint" }, `Nothing of the inside of ${state.method} is kept here for this class. Methods that keep something show it block by block.`)];
  return [
    h("p", { class: "hint" }, "Block by block, each row on one scale. Matrices are shown as the head reads them: the row of the class token, or the mean of the patches."),
    ...(attention ? [blocks(p, attention)] : []),
    ...found.map((row) => (row.gallery ? gallery(p, row) : blocks(p, row))),
  ];
}

function scaleOf(row) {
  const maps = row.maps.filter((m) => m.values);
  const signed = state.view.sign === "signed" || (state.view.sign === "auto" && maps.some(isSigned));
  return { span: limits(maps, signed), signed, view: { ...state.view, sign: signed ? "signed" : "positive" } };
}

function part(map, scale, caption) {
  const canvas = h("canvas", { width: 120, height: Math.round((120 * map.h) / map.w), "aria-hidden": "true" });
  paintMap(canvas.getContext("2d"), map, [0, 0, canvas.width, canvas.height], { ...scale.view, smooth: false }, scale.span, { solid: true });
  return h("figure", { class: "inside" }, canvas, h("figcaption", {}, caption));
}

function blocks(p, row) {
  const scale = scaleOf(row);
  return h("section", { class: "row" },
    h("h3", {}, row.name, h("span", { class: "range" }, ` ${number(scale.span[0])} to ${number(scale.span[1])}`)),
    h("div", { class: "scroll insides", tabindex: 0, role: "region", "aria-label": `${row.name}, block by block` },
      row.maps.filter((m) => m.values).map((m) => part(m, scale, m.block < 0 ? "" : m.block + 1))));
}

function gallery(p, row) {
  const scale = scaleOf(row);
  return h("section", { class: "row" },
    h("h3", {}, row.name, h("span", { class: "range" }, ` the ${row.maps.length} highest of ${row.total}`)),
    h("div", { class: "scroll insides wrap", tabindex: 0, role: "region", "aria-label": row.name },
      row.maps.filter((m) => m.values).map((m) => part(m, scale, m.score === null ? "" : number(m.score)))));
}
