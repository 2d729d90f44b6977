// Elements in one call: h("button", {class: "x", onclick: f}, "text", child)
export function h(tag, props = {}, ...children) {
  const svg = SVG.has(tag);
  const el = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [k, v] of Object.entries(value)) el.style.setProperty(k, v);
    else if (svg || key.includes("-") || key === "role" || key === "for" || key === "class" || key === "list") el.setAttribute(key, value);
    else if (key in el) el[key] = value;
    else el.setAttribute(key, value);
  }
  el.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return el;
}

const SVG = new Set(["svg", "path", "line", "text", "g", "rect", "circle", "polyline", "tspan"]);

export const $ = (id) => document.getElementById(id);

export function fill(id, ...children) {
  const el = typeof id === "string" ? $(id) : id;
  // what had the focus keeps it over a redraw, with what was typed so far
  const active = el.contains(document.activeElement) ? document.activeElement : null;
  const held = active?.dataset.key;
  el.replaceChildren(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  const again = held ? el.querySelector(`[data-key="${CSS.escape(held)}"]`) : null;
  again?.focus({ preventScroll: true });
  if (again && active.type === "text") again.value = active.value;
  return el;
}

export const percent = (p) => (p >= 0.9995 ? "100" : (100 * p).toFixed(1)) + " %";

export function number(v) {
  if (!Number.isFinite(v)) return "none";
  if (v === 0) return "0";
  const size = Math.abs(v);
  const text = size >= 1e4 || size < 1e-3 ? v.toExponential(1) : size >= 100 ? v.toFixed(0) : v.toPrecision(2);
  return text.replace("-", "\u2212");
}

export function say(text) {
  $("said").textContent = text;
}

export function alertUser(text, kind = "error") {
  const close = h("button", { class: "plain", "aria-label": "Close this message", onclick: () => box.remove() }, "\u00d7");
  const box = h("div", { class: `alert ${kind}` }, h("span", {}, text), close);
  $("alerts").replaceChildren(box);
}

export function clearAlert() {
  $("alerts").replaceChildren();
}

// many calls in one frame are one drawing
export function later(draw) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  };
}

export function download(name, blob) {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
