// The likeliest classes: click one to explain it instead, or hold one against another.
import { h, fill, percent, alertUser } from "./dom.js";
import { state, change, picture, run, onChange } from "./state.js";
import { live, explainTarget, modelNow } from "./live.js";

let rather = false;

export function makeClasses() {
  onChange(drawClasses);
}

function drawClasses() {
  const p = picture();
  if (!p) return fill("classes");
  const now = run();
  const most = Math.max(...p.classes.map((c) => c[2]), 1e-9);
  const rows = p.classes.map(([index, label, share]) => row(p, now, index, label, share / most, share));
  const contrast = now.against !== null && now.against !== undefined;
  const pair = p.runs.findIndex((r) => r.against !== null && r.against !== undefined);
  fill(
    "classes",
    h("div", { class: "heading" },
      h("h2", {}, contrast ? "Why this class rather than the other" : "What the model says"),
      live() || pair >= 0 ? h("button", { class: "small", "aria-pressed": String(rather), "data-key": "rather", onclick: () => toggle(p, pair) }, "A rather than B") : null),
    rather ? h("p", { class: "hint" }, "Now choose the class that the explained one is held against.") : null,
    h("ul", { class: "classes" }, rows),
    beyond(p, now),
  );
}

function toggle(p, pair) {
  if (live()) {
    rather = !rather;
    return change();
  }
  change({ run: state.run === pair ? 0 : pair });
}

function row(p, now, index, label, length, share) {
  const at = find(p, index);
  const role = now.target === index ? "explained" : now.against === index ? "held against it" : "";
  const able = live() || at >= 0 || (rather && now.target !== index);
  return h("li", {},
    h("button", {
      class: `class${role ? (now.against === index ? " against" : " target") : ""}`,
      disabled: !able,
      "aria-pressed": String(now.target === index),
      "data-key": `class-${index}`,
      title: able ? `Explain ${label}` : "Not in this file: write it with more classes, or use patchlight serve",
      onclick: () => choose(p, now, index),
    },
    h("span", { class: "bar", style: { "--share": `${100 * length}%` } }),
    h("span", { class: "label" }, label.replaceAll("_", " ")),
    h("span", { class: "role" }, role),
    h("span", { class: "share" }, percent(share))));
}

const find = (p, target, against = null) => p.runs.findIndex((r) => r.target === target && (r.against ?? null) === against);

function choose(p, now, index) {
  const against = rather && index !== now.target ? index : null;
  const target = against === null ? index : now.target;
  rather = false;
  const at = find(p, target, against);
  if (at >= 0) change({ run: at });
  else if (live()) explainTarget(target, against);
}

// The explained class when it is not among the likeliest, and with a live model any other
function beyond(p, now) {
  if (now.target < 0) return h("p", { class: "hint" }, "A function of the outputs is explained.");
  const known = p.classes.some((c) => c[0] === now.target);
  return [known ? null : h("p", { class: "hint" }, "Explained: ", h("b", {}, p.labels[now.target] ?? `class ${now.target}`)), live() ? anyClass(p, now) : null];
}

function anyClass(p, now) {
  const { labels } = modelNow();
  const take = (event) => {
    event.preventDefault();
    const text = event.target.elements[0].value.trim();
    const at = labels.indexOf(text);
    const index = at >= 0 ? at : /^\d+$/.test(text) ? Number(text) : -1;
    if (index < 0) return alertUser(`There is no class ${text}. Choose one of the list, or give its number.`);
    event.target.reset();
    p.labels[index] = labels[index] ?? `class ${index}`;
    choose(p, now, index);
  };
  return h("form", { class: "any", onsubmit: take },
    h("input", { type: "text", list: "labels", placeholder: rather ? "against any other class" : "any other class", "aria-label": "Any other class, by name or number", "data-key": "any" }),
    h("datalist", { id: "labels" }, labels.map((value) => h("option", { value }))), h("button", { class: "small" }, "Explain"));
}
