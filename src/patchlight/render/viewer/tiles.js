// Small multiples: every method on what the model saw, each with its own scale.
import { h, fill, number } from "./dom.js";
import { state, change, doc, picture, run, mapOf, spanOf, methodNames, onChange } from "./state.js";
import { paintMap, legend } from "./paint.js";
import { jobState, live } from "./live.js";

export function makeTiles() {
  onChange(drawTiles);
}

function drawTiles() {
  const p = picture();
  if (!p) return fill("tiles");
  const names = methodNames();
  fill("tiles", h("div", { class: "tiles", role: "group", "aria-label": "Methods" }, names.map((name) => tile(p, name))));
}

function tile(p, name) {
  const about = doc.methods[name];
  const map = mapOf(name);
  const waiting = jobState(name);
  const notes = [...(run()?.notes?.[name] ?? []), ...(run()?.maps[name] ? [] : map ? ["does not depend on the class"] : [])];
  const chosen = state.method === name;
  const body = map?.values ? [thumb(p, name, map)] : [h("span", { class: "empty" }, waiting ? waiting.text : missing(about))];
  if (waiting && !map?.values) body.push(h("progress", { max: 1, value: waiting.share ?? undefined, "aria-label": `${name} is running` }));
  return h(
    "button",
    {
      class: `tile${chosen ? " chosen" : ""}`,
      "aria-pressed": String(chosen),
      "aria-label": `${name}. ${about?.summary ?? ""} ${notes.join(". ")}`,
      title: notes.join("\n"),
      "data-key": `tile-${name}`,
      onclick: () => change({ method: name, layer: "map" }),
    },
    h("span", { class: "thumb" }, body),
    h("span", { class: "name" }, broken(name), notes.some((n) => !n.startsWith("does not") && !n.startsWith("class-blind")) ? h("span", { class: "badge", "aria-hidden": "true" }, "!") : ""),
    h("span", { class: "scale" }, map?.values ? scaleLine(name) : ""),
  );
}

// A long name breaks behind an underscore
const broken = (name) => name.split(/(?<=_)/).flatMap((part) => [part, h("wbr", {})]);

function missing(about) {
  return about?.problem ?? (live() ? "stopped; choose the class again for the rest" : state.run ? "not computed for this class" : "no map");
}

function scaleLine(name) {
  if (state.view.scale === "percentile") return ["ranks of the map"];
  const { span, signed } = spanOf(name);
  const bar = legend(signed, state.view, 48, 5);
  bar.setAttribute("aria-hidden", "true");
  return [number(span[0]), bar, number(span[1])];
}

// What the model saw, with the map on it
export function thumb(p, name, map, side = 132) {
  const { span, signed } = spanOf(name);
  return onPicture(p, map, span, { ...state.view, sign: signed ? "signed" : "positive" }, side);
}

export function onPicture(p, map, span, view, side) {
  const dense = Math.min(2, devicePixelRatio || 1);
  const [x0, y0, x1, y1] = p.box;
  const ratio = (side * dense) / Math.max(x1 - x0, y1 - y0);
  const canvas = h("canvas", { width: Math.round((x1 - x0) * ratio), height: Math.round((y1 - y0) * ratio), "aria-hidden": "true" });
  const ctx = canvas.getContext("2d");
  ctx.drawImage(p.image, -x0 * ratio, -y0 * ratio, p.size[0] * ratio, p.size[1] * ratio);
  if (map) paintMap(ctx, map, [0, 0, canvas.width, canvas.height], view, span, { detail: 160 });
  return canvas;
}
