// Single keys for what is done often; they can be switched off in the help.
import { h } from "./dom.js";
import { state, change, changeView, doc, methodNames } from "./state.js";

const KEYS = [
  ["[ ]", "previous and next method"],
  [", .", "previous and next picture"],
  ["b", "smooth or blocky"],
  ["g", "patch grid"],
  ["s", "signed or positive"],
  ["p", "raw or percentile scale"],
  ["+ \u2212", "opacity"],
  ["m", "map or attention"],
  ["r", "brush a region"],
  ["t", "light or dark"],
  ["Esc", "let go of the patch"],
  ["?", "this help"],
  ["arrows, Enter, Space", "on the picture: move, attend, take away"],
];

const SIGNS = ["auto", "signed", "positive"];
let dialog = null;

export function helpButton() {
  return h("button", { class: "small", "aria-label": "Keys and help", onclick: showHelp }, "?");
}

function showHelp() {
  dialog ??= document.body.appendChild(
    h("dialog", { "aria-label": "Keys and help" },
      h("h2", {}, "Keys"),
      h("dl", { class: "keys" }, KEYS.map(([k, what]) => [h("dt", {}, h("kbd", {}, k)), h("dd", {}, what)])),
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: state.shortcuts, onchange: (e) => change({ shortcuts: e.target.checked }) }), "Single keys are on"),
      h("p", { class: "hint" }, "Opacity grows with the score, so the photo stays as it is where nothing was found. Grey lies outside what the model saw."),
      h("form", { method: "dialog" }, h("button", { class: "small" }, "Close"))));
  dialog.showModal();
}

const next = (list, now, by) => list[(list.indexOf(now) + by + list.length) % list.length];

const ACTIONS = {
  "[": () => change({ method: next(methodNames(), state.method, -1), layer: "map" }),
  "]": () => change({ method: next(methodNames(), state.method, 1), layer: "map" }),
  ",": () => turn(-1),
  ".": () => turn(1),
  b: () => changeView({ smooth: !state.view.smooth }),
  g: () => changeView({ grid: !state.view.grid }),
  s: () => changeView({ sign: next(SIGNS, state.view.sign, 1) }),
  p: () => changeView({ scale: state.view.scale === "raw" ? "percentile" : "raw" }),
  "+": () => changeView({ opacity: Math.min(1, state.view.opacity + 0.1) }),
  "-": () => changeView({ opacity: Math.max(0, state.view.opacity - 0.1) }),
  m: () => change({ layer: state.layer === "map" ? "attention" : "map" }),
  r: () => change({ brush: !state.brush, tab: "region" }),
  t: () => change({ theme: isDark() ? "light" : "dark" }),
  "?": showHelp,
  Escape: () => change({ pin: null, layer: "map", brush: false }),
};

export const isDark = () => (state.theme === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : state.theme === "dark");

export function turn(by) {
  const count = doc.pictures.length;
  if (count > 1) change({ picture: (state.picture + by + count) % count, run: 0, pin: null, layer: "map", region: new Set() });
}

export function listenKeys() {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.closest("input:not([type=range]):not([type=checkbox]), textarea, select")) return;
    if (!state.shortcuts && event.key !== "Escape") return;
    const action = ACTIONS[event.key === "=" ? "+" : event.key];
    if (action) action();
  });
}
