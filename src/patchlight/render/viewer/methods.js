// Which methods, with which settings: forms made from what the registry says of each.
import { h, alertUser } from "./dom.js";
import { catalogue, chosen, modelNow, useMethods } from "./live.js";

export function chooseMethods() {
  const { problems } = modelNow();
  const fields = new Map();
  const families = [...new Set(catalogue().methods.map((m) => m.family))];
  const list = families.map((family) =>
    h("fieldset", {}, h("legend", {}, family), catalogue().methods.filter((m) => m.family === family).map((m) => entry(m, problems[m.name], fields))));
  const pick = (test) => () => fields.forEach(({ box, method }) => (box.checked = !box.disabled && test(method)));
  const box = h("dialog", { class: "methods", "aria-label": "Methods and settings", onclose: () => box.remove() },
    h("h2", {}, "Methods"),
    h("div", { class: "controls" }, h("button", { class: "small", onclick: pick((m) => m.cheap) }, "Fast ones"), h("button", { class: "small", onclick: pick(() => true) }, "All"), h("button", { class: "small", onclick: pick(() => false) }, "None")),
    list,
    h("div", { class: "controls end" }, h("button", { class: "small", onclick: () => box.close() }, "Close"), h("button", { class: "small primary", "data-key": "apply", onclick: apply }, "Explain with these")));
  function apply() {
    try {
      const found = {};
      fields.forEach(({ box: on, values }, name) => on.checked && (found[name] = values()));
      if (!Object.keys(found).length) throw new Error("Choose at least one method.");
      box.close();
      useMethods(found);
    } catch (error) {
      alertUser(error.message);
    }
  }
  document.body.append(box);
  box.showModal();
}

function entry(method, problem, fields) {
  const now = chosen()[method.name];
  const box = h("input", { type: "checkbox", checked: Boolean(now), disabled: Boolean(problem), id: `use-${method.name}` });
  const settings = method.settings.filter((s) => s.kinds.some((k) => k !== "tensor" && k !== "none"));
  const controls = settings.map((s) => [s, control(method, s, now?.[s.name] ?? s.default)]);
  fields.set(method.name, {
    box,
    method,
    values: () => Object.fromEntries(controls.map(([s, c]) => [s.name, valueOf(s, c)]).filter(([name, v], k) => JSON.stringify(v) !== JSON.stringify(settings[k].default))),
  });
  const passes = method.passes === 1 ? "1 pass" : `${method.passes} passes`;
  return h("div", { class: "method" },
    h("label", { class: "check" }, box, h("b", {}, method.name), h("span", { class: "hint" }, `\u00a0 ${passes}`)),
    h("p", { class: "hint" }, problem ? `Not for this model: ${problem}` : method.summary),
    controls.length && !problem ? h("details", {}, h("summary", {}, "Settings"), h("div", { class: "controls" }, controls.map(([s, c]) => h("label", { class: "field", title: s.takes }, h("span", {}, s.name), c)))) : null);
}

function control(method, setting, value) {
  const { kinds, choices } = setting;
  const name = { "data-setting": `${method.name}.${setting.name}` };
  if (kinds.includes("choice") && !kinds.includes("list")) {
    const all = kinds.includes("none") ? ["", ...choices] : choices;
    return h("select", name, all.map((c) => h("option", { value: c, selected: c === (value ?? "") }, c || "None")));
  }
  if (kinds[0] === "flag") return h("input", { type: "checkbox", checked: Boolean(value), ...name });
  const numeric = kinds.every((k) => ["integer", "number", "none"].includes(k));
  const shown = value === null || value === undefined ? "" : Array.isArray(value) ? value.join(", ") : String(value);
  return h("input", { type: numeric ? "number" : "text", step: kinds.includes("number") ? "any" : "1", value: shown, placeholder: kinds.includes("none") ? "None" : "", size: 9, ...name });
}

function valueOf(setting, input) {
  if (input.type === "checkbox") return input.checked;
  const text = input.value.trim();
  if (!text) return setting.kinds.includes("none") ? null : setting.default;
  if (input.type === "number") return Number(text);
  if (setting.choices.includes(text)) return text;
  if (setting.kinds.includes("list") && /[,\s]/.test(text)) return text.split(/[,\s]+/).map(Number);
  return Number.isNaN(Number(text)) ? text : Number(text);
}
