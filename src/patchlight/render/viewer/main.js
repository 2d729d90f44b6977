// Puts the page together.
import { h, fill, $ } from "./dom.js";
import { state, change, changeView, doc, picture, readLink, decodePicture, methodNames, favourite, onChange } from "./state.js";
import { colourMaps } from "./paint.js";
import { makeStage, pinHighest } from "./stage.js";
import { makeTiles } from "./tiles.js";
import { makeClasses } from "./classes.js";
import { drawAttention, hasAttention } from "./attention.js";
import { drawRemoval, drawRegion } from "./removal.js";
import { drawInsides } from "./insides.js";
import { drawAbout } from "./about.js";
import { exportMenu } from "./exports.js";
import { startLive, live, liveBar, drawWelcome } from "./live.js";
import { helpButton, listenKeys, isDark } from "./keys.js";

const TABS = {
  attention: ["Attention", drawAttention],
  removal: ["Take away", drawRemoval],
  insides: ["Inside", drawInsides],
  region: ["Region", drawRegion],
  about: ["About", drawAbout],
};

function drawBar() {
  const shown = doc.model?.name ? h("span", { class: "model", title: doc.model.origin ?? "" }, doc.model.name) : null;
  fill("bar", h("h1", {}, h("span", { class: "mark", "aria-hidden": "true" }, Array.from({ length: 9 }, () => h("i", {}))), "patchlight"), live() ? liveBar() : shown, h("span", { class: "space" }), picture() ? exportMenu() : null,
    h("button", { class: "small", "aria-label": isDark() ? "Use the light theme" : "Use the dark theme", "data-key": "theme", onclick: () => change({ theme: isDark() ? "light" : "dark" }) }, isDark() ? "\u263c" : "\u263e"), helpButton());
}

function drawSource() {
  if (doc.pictures.length < 2) return fill("source");
  const go = (k) => () => change({ picture: k, run: 0, pin: null, layer: "map", region: new Set() });
  fill("source", h("div", { class: "film", role: "group", "aria-label": "Pictures" }, doc.pictures.map((p, k) =>
    h("button", { class: `frame${k === state.picture ? " chosen" : ""}`, "aria-pressed": String(k === state.picture), "aria-label": p.name, title: p.name, "data-key": `frame-${k}`, onclick: go(k) }, h("img", { src: p.src, alt: "" })))));
}

function choice(label, key, values, names = values) {
  return h("label", { class: "field" }, h("span", {}, label),
    h("select", { "data-key": key, onchange: (e) => changeView({ [key]: e.target.value }) }, values.map((v, k) => h("option", { value: v, selected: state.view[key] === v }, names[k]))));
}

function flag(label, key) {
  return h("label", { class: "check" }, h("input", { type: "checkbox", checked: state.view[key], "data-key": key, onchange: (e) => changeView({ [key]: e.target.checked }) }), label);
}

function drawView() {
  if (!picture()) return fill("view");
  const open = $("view").querySelector("details")?.open ?? innerWidth > 900;
  fill("view", h("details", { class: "viewbox", open }, h("summary", { "data-key": "viewbox" }, "View"), h("div", { class: "controls view" },
    h("label", { class: "field" }, h("span", {}, "Opacity"), h("input", { type: "range", min: 0, max: 100, value: Math.round(100 * state.view.opacity), "data-key": "opacity", oninput: (e) => changeView({ opacity: e.target.value / 100 }) })),
    choice("Colours", "sequential", colourMaps("sequential")),
    choice("Signed colours", "diverging", colourMaps("diverging")),
    choice("Sign", "sign", ["auto", "signed", "positive"], ["as it comes", "signed", "positive only"]),
    choice("Scale", "scale", ["raw", "percentile"], ["raw scores", "percentiles"]),
    flag("Smooth", "smooth"), flag("Patch grid", "grid"),
    hasAttention() && state.pin ? h("div", { class: "segmented", role: "group", "aria-label": "On the picture" }, ["map", "attention"].map((l) => h("button", { "aria-pressed": String(state.layer === l), "data-key": `layer-${l}`, onclick: () => change({ layer: l }) }, l))) : null)));
}

function drawTabs() {
  if (!picture()) {
    fill("tabs");
    return fill("panel");
  }
  const names = Object.keys(TABS);
  const walk = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const tab = names[(names.indexOf(state.tab) + by + names.length) % names.length];
    change({ tab });
    requestAnimationFrame(() => requestAnimationFrame(() => document.querySelector(`#tab-${tab}`)?.focus()));
  };
  fill("tabs", h("div", { role: "tablist", "aria-label": "Details", onkeydown: walk }, names.map((name) =>
    h("button", { id: `tab-${name}`, role: "tab", "aria-selected": String(state.tab === name), "aria-controls": "panel", tabindex: state.tab === name ? 0 : -1, "data-key": `tab-${name}`, onclick: () => change({ tab: name, layer: name === "attention" && state.pin ? "attention" : "map" }) }, TABS[name][0]))));
  const panel = $("panel");
  const scrolled = [...panel.querySelectorAll(".scroll")].map((s) => s.scrollLeft);
  panel.setAttribute("role", "tabpanel");
  panel.setAttribute("aria-labelledby", `tab-${state.tab}`);
  fill(panel, ...TABS[state.tab][1]());
  panel.querySelectorAll(".scroll").forEach((s, k) => (s.scrollLeft = scrolled[k] ?? 0));
}

function drawTheme() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
}

function settle() {
  if (!(state.tab in TABS)) state.tab = "attention";
  if (!doc.pictures[state.picture]) state.picture = 0;
  if (!picture()?.runs[state.run]) state.run = 0;
  if (!methodNames().includes(state.method)) state.method = favourite();
}

async function start() {
  const given = readLink();
  await startLive(given);
  await Promise.all(doc.pictures.map(decodePicture));
  settle();
  pinHighest();
  onChange(drawTheme);
  onChange(settle);
  onChange(drawBar);
  onChange(drawSource);
  makeStage();
  makeClasses();
  onChange(drawView);
  makeTiles();
  onChange(drawTabs);
  onChange(drawWelcome);
  listenKeys();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => change());
  change();
  document.documentElement.dataset.ready = "yes";
}

start();
