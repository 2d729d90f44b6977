// PNG, SVG, NPZ and HTML of what is shown.
import { h, download, alertUser, say } from "./dom.js";
import { state, doc, picture, run, link, methodNames, mapOf } from "./state.js";
import { scaled, palette } from "./paint.js";
import { npy, zip } from "./zip.js";
import { layerNow, paintPicture, title } from "./stage.js";
import { live, askFile } from "./live.js";

const fileBase = () => `${picture().name.replace(/\.[^.]*$/, "").replace(/[^\w.-]+/g, "_")}.${state.layer === "attention" && state.pin ? "attention" : state.method}`;

export function exportMenu() {
  const items = [["PNG picture", savePng], ["SVG drawing", saveSvg], ["NPZ scores", saveNpz], ["HTML page", saveHtml], ["Link to this view", share]];
  const act = (f) => async (event) => {
    event.currentTarget.closest("details").open = false;
    try {
      if (picture()) await f();
    } catch (error) {
      alertUser(String(error.message ?? error));
    }
  };
  return h("details", { class: "menu" }, h("summary", { "data-key": "export" }, "Save"), h("div", { class: "sheet" }, items.map(([name, f]) => h("button", { class: "plain", onclick: act(f) }, name))));
}

async function savePng() {
  const p = picture();
  const ratio = Math.max(1, 1280 / Math.max(...p.size));
  const canvas = h("canvas", { width: Math.round(p.size[0] * ratio), height: Math.round(p.size[1] * ratio) });
  paintPicture(canvas.getContext("2d"), p, { width: canvas.width, height: canvas.height, box: p.box.map((v) => v * ratio) });
  download(`${fileBase()}.png`, await new Promise((done) => canvas.toBlob(done, "image/png")));
}

// The photo, and each patch as a rectangle that an editor can take apart; maps of pixels go in as a picture
async function saveSvg() {
  const p = picture();
  const layer = layerNow();
  const [x0, y0, x1, y1] = p.box;
  const parts = [`<image href="${p.src}" width="${p.size[0]}" height="${p.size[1]}"/>`];
  if (layer && layer.map.values.length <= 4096) parts.push(...rectangles(layer, [x0, y0, x1 - x0, y1 - y0]));
  else if (layer) {
    const canvas = h("canvas", { width: p.size[0], height: p.size[1] });
    paintPicture(canvas.getContext("2d"), p, { width: p.size[0], height: p.size[1], box: p.box });
    parts[0] = `<image href="${canvas.toDataURL("image/png")}" width="${p.size[0]}" height="${p.size[1]}"/>`;
  }
  const escaped = title().replace(/&/g, "&amp;").replace(/</g, "&lt;");
  const text = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${p.size[0]} ${p.size[1]}"><title>${escaped}</title>${parts.join("")}</svg>`;
  download(`${fileBase()}.svg`, new Blob([text], { type: "image/svg+xml" }));
}

function rectangles({ map, view, span }, [x, y, w, hh]) {
  const found = scaled(map, view, span);
  const colours = palette(found.signed ? "diverging" : "sequential", found.signed ? view.diverging : view.sequential);
  const [low, high] = found.span;
  const most = Math.max(Math.abs(low), Math.abs(high)) || 1;
  const out = [];
  found.values.forEach((v, i) => {
    const t = found.signed ? v / most : (v - low) / (high - low || 1);
    const s = Math.round(Math.min(255, Math.max(0, found.signed ? 128 + 127 * t : 255 * t)));
    const alpha = view.opacity * Math.min(1, Math.abs(t));
    if (!(alpha > 0.004)) return;
    const at = [x + ((i % map.w) * w) / map.w, y + (Math.floor(i / map.w) * hh) / map.h];
    out.push(`<rect x="${at[0].toFixed(2)}" y="${at[1].toFixed(2)}" width="${(w / map.w).toFixed(2)}" height="${(hh / map.h).toFixed(2)}" fill="rgb(${colours[3 * s]},${colours[3 * s + 1]},${colours[3 * s + 2]})" fill-opacity="${alpha.toFixed(3)}"/>`);
  });
  return out;
}

async function saveNpz() {
  if (live()) return askFile("npz");
  const files = [];
  for (const name of methodNames()) {
    const map = mapOf(name);
    if (map?.values) files.push([`${name}.npy`, npy(map.values, [map.h, map.w])]);
  }
  const record = { model: doc.model, picture: picture().name, explained: run().label, methods: doc.methods, precision: "as kept in the page: 16 bits for patches, 8 for pixels" };
  files.push(["record.json", new TextEncoder().encode(JSON.stringify(record, null, 1))]);
  download(`${picture().name.replace(/\.[^.]*$/, "")}.npz`, zip(files));
}

// A file is already the page; a live page asks the server for one
async function saveHtml() {
  if (live()) return askFile("html");
  const source = `<!doctype html>\n${ORIGINAL}`;
  download(`${picture().name.replace(/\.[^.]*$/, "")}.html`, new Blob([source], { type: "text/html" }));
}

const ORIGINAL = document.documentElement.outerHTML; // before anything is drawn

async function share() {
  const url = `${location.href.split("#")[0]}#${link()}`;
  try {
    await navigator.clipboard.writeText(url);
    say("The link is copied.");
    alertUser("The link to this view is copied.", "note");
  } catch {
    alertUser(`The link to this view: ${url}`, "note");
  }
}
