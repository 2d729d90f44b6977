// The live model behind the page: pictures go there, maps stream back.
import { h, $, alertUser, clearAlert, download, say } from "./dom.js";
import { state, change, doc, picture, run, mapOf, decodeRun, forgetSpans, keepInLink, favourite } from "./state.js";
import { decodeBlock, attentionRow } from "./decode.js";
import { finished, mean } from "./attention.js";
import { baseGrid, pinHighest } from "./stage.js";
import { chooseMethods } from "./methods.js";

const KEPT_PICTURES = 6;
let token = "";
let current = null; // the stream of maps that is being read
const running = new Map(); // label -> {text, share}

export const live = () => Boolean(doc.live);
export const jobState = (label) => running.get(label) ?? null;
export const catalogue = () => doc.live.about;
export const chosen = () => doc.live.chosen;
export const modelNow = () => catalogue().models.find((m) => m.name === doc.live.model);

// -- asking -----------------------------------------------------------------------------------------------------------
async function ask(path, body, options = {}) {
  const raw = body instanceof Blob;
  const headers = { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...(body ? { "Content-Type": raw ? body.type || "application/octet-stream" : "application/json" } : {}) };
  let answer;
  try {
    answer = await fetch(path, { method: body || options.post ? "POST" : "GET", headers, body: body ? (raw ? body : JSON.stringify(body)) : undefined, signal: options.signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is patchlight serve still running?");
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  throw Object.assign(new Error(told.error ?? `The server answered ${answer.status}.`), { status: answer.status });
}

// Lines of JSON as they come
async function* lines(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      for (const part of parts) if (part) yield JSON.parse(part);
    }
  } finally {
    reader.cancel().catch(() => null);
  }
}

// A picture that the server has forgotten is sent again
async function forPicture(p, path, body, options) {
  const full = () => ({ picture: p.id, model: doc.live.model, ...body });
  try {
    return await ask(path, full(), options);
  } catch (error) {
    if (error.status !== 404 || !p.file) throw error;
    await ask(address("/pictures", p.name), p.file);
    return ask(path, full(), options);
  }
}

const address = (path, name) => `${path}?${new URLSearchParams({ ...(name ? { name } : {}), model: doc.live.model })}`;
const failed = (error) => error.name !== "AbortError" && alertUser(error.message);

// -- pictures ---------------------------------------------------------------------------------------------------------
export async function sendPicture(file, name = file.name || "picture") {
  clearAlert();
  try {
    const { bytes } = catalogue().limits;
    if (file.size > bytes) throw new Error(`${name} has ${file.size.toLocaleString("en")} bytes, but the server takes at most ${bytes.toLocaleString("en")}. Scale it down.`);
    say(`Sending ${name}`);
    const found = await (await ask(address("/pictures", name), file)).json();
    await showPicture(found, file);
  } catch (error) {
    failed(error);
  }
}

async function openKnown(path, options) {
  clearAlert();
  try {
    await showPicture(await (await ask(address(path), null, options)).json());
  } catch (error) {
    failed(error);
  }
}

async function showPicture(found, file = null) {
  stopMaps();
  const old = doc.pictures.findIndex((p) => p.id === found.id);
  const p = { ...found, file: file ?? doc.pictures[old]?.file ?? null, runs: [], attends: true, image: new Image() };
  p.image.src = p.src;
  await p.image.decode();
  if (old >= 0) doc.pictures.splice(old, 1);
  doc.pictures.push(p);
  doc.pictures.splice(0, Math.max(0, doc.pictures.length - KEPT_PICTURES)); // the browser's memory stays bounded
  forgetSpans();
  keepInLink("id", p.id);
  change({ picture: doc.pictures.length - 1, run: 0, pin: null, region: new Set(), layer: "map" });
  say(`${p.name}: ${p.classes[0][1]}`);
  return explainTarget(p.classes[0][0], null);
}

// -- maps -------------------------------------------------------------------------------------------------------------
export function explainTarget(target, against = null) {
  const p = picture();
  let at = p.runs.findIndex((r) => r.target === target && (r.against ?? null) === against);
  if (at < 0) at = p.runs.push({ target, against, label: "", maps: {}, notes: {}, insides: {}, curves: {}, problems: {} }) - 1;
  change({ run: at });
  return loadMaps();
}

export function stopMaps() {
  current?.abort();
  current = null;
  running.clear();
}

// The maps that the shown class does not have yet
export async function loadMaps() {
  stopMaps();
  const [p, r] = [picture(), run()];
  if (!p || !r) return;
  const { problems } = modelNow();
  const missing = Object.keys(doc.methods).filter((n) => !r.maps[n] && !problems[n] && !(doc.methods[n].blind && mapOf(n, p, r)));
  if (!missing.length) return change();
  const stop = (current = new AbortController());
  for (const name of missing) running.set(name, { text: "waiting" });
  change();
  const methods = Object.fromEntries(missing.map((n) => [n, chosen()[n]]));
  try {
    const answer = await forPicture(p, "/explain/stream", { methods, target: r.target, against: r.against, insides: true }, { signal: stop.signal });
    for await (const event of lines(answer)) {
      if (stop.signal.aborted) return;
      await take(event, p, r);
    }
  } catch (error) {
    if (!stop.signal.aborted) failed(error);
  } finally {
    if (current === stop) {
      stopMaps();
      if (state.tab === "attention" && p === picture()) pinHighest();
    }
    change();
  }
}

async function take(event, p, r) {
  if (event.event === "map") {
    const { label } = event;
    r.maps[label] = event.map;
    r.notes[label] = event.notes;
    if (event.insides) r.insides[label] = event.insides;
    r.label = event.text;
    Object.assign(doc.methods[label], event.about);
    running.delete(label);
    await decodeRun(r);
    forgetSpans();
  } else if (event.event === "progress") {
    for (const label of event.labels) if (running.has(label)) running.set(label, { text: `${event.done} of ${event.all}`, share: event.done / event.all });
  } else if (event.event === "problem") {
    running.delete(event.label);
    doc.methods[event.label].problem = event.error;
  } else if (event.event === "error") alertUser(event.error);
  change();
}

// Methods and settings from the form; what was worked out with other settings is forgotten
export function useMethods(found) {
  setMethods(found);
  return loadMaps();
}

function setMethods(found) {
  const known = Object.fromEntries(catalogue().methods.map((m) => [m.name, m]));
  for (const name of Object.keys(doc.methods)) {
    if (JSON.stringify(found[name]) === JSON.stringify(chosen()[name])) continue;
    for (const p of doc.pictures) for (const r of p.runs) for (const part of ["maps", "curves", "insides", "notes"]) delete r[part][name];
  }
  doc.live.chosen = found;
  const { problems } = modelNow();
  const info = (n) => ({ ...known[n], settings: doc.methods[n]?.settings ?? {}, problem: problems[n] });
  doc.methods = Object.fromEntries(Object.keys(found).map((n) => [n, info(n)]));
  keepInLink("ms", JSON.stringify(found));
  forgetSpans();
  if (!doc.methods[state.method]) state.method = favourite();
}

async function useModel(name) {
  stopMaps();
  doc.live.model = name;
  keepInLink("model", name);
  describeModel();
  setMethods(usable(chosen()));
  const p = picture();
  doc.pictures.length = 0; // what another model said of them
  change({ pin: null });
  if (p?.file) await sendPicture(p.file, p.name);
  else if (p) await openKnown(`/pictures/${p.id}`);
}

function describeModel() {
  const { name, size, origin, labels } = modelNow();
  doc.model = { name, size, origin, classes: labels.length || "unknown" };
  Object.assign(doc, { version: doc.live.version, torch: catalogue().torch });
}

function usable(found) {
  const able = Object.fromEntries(Object.entries(found).filter(([n]) => !modelNow().problems[n]));
  return Object.keys(able).length ? able : usual();
}

// -- clicks -----------------------------------------------------------------------------------------------------------
export async function askAttention(p, pin, done) {
  try {
    const { blocks } = await (await forPicture(p, "/attention", { patch: pin, grid: baseGrid() })).json();
    const cells = [];
    for (const one of await Promise.all(blocks.map(decodeBlock))) {
      const [rows, columns] = one.grid;
      // each head has the one row that was asked for
      const row = { ...one, tokens: rows * columns };
      const maps = Array.from({ length: one.heads }, (_, k) => rowOf(row, k, one.others[k]));
      maps.forEach((map, head) => cells.push({ block: one.index, head, map }));
      cells.push({ block: one.index, head: null, map: mean(maps) });
    }
    if (!cells.length) p.attends = false;
    done(cells.length ? finished(cells) : null);
  } catch (error) {
    p.attends = error.status === 422 ? false : p.attends;
    failed(error);
    done(null);
  }
}

function rowOf(block, head, others) {
  const n = block.tokens;
  const single = { ...block, steps: block.steps.subarray(head * n, (head + 1) * n), tops: block.tops.subarray(head, head + 1) };
  return { ...attentionRow(single, 0, 0), others };
}

const asking = new Set();

export async function askCurves(p, r, name) {
  const key = `${p.id}/${doc.live.model}/${r.target}/${r.against}/${name}`;
  if (asking.has(key)) return;
  asking.add(key);
  const map = mapOf(name, p, r);
  const grid = map.h * map.w <= 4096 ? [map.h, map.w] : p.grid;
  const ranks = orderOf(map, grid);
  try {
    const answer = await forPicture(p, "/curves", { grid, order: ranks, target: r.target, against: r.against });
    const curves = { grid, ranks, counts: [], deletion: { value: [], top: [] }, insertion: { value: [], top: [] } };
    for await (const event of lines(answer)) {
      if (event.counts) curves.counts = event.counts;
      if (event.event === "error") throw new Error(event.error);
      (event.value ?? []).forEach((v, k) => {
        const side = (event.start + k) % 2 ? "insertion" : "deletion";
        curves[side].value.push(v);
        curves[side].top.push(event.top[k]);
      });
      Object.assign(p.labels, event.labels);
      if (curves.counts.length) r.curves[name] = curves;
      change();
    }
  } catch (error) {
    failed(error);
  } finally {
    setTimeout(() => asking.delete(key), 2000);
  }
}

// Patches from the highest score down; of a map of pixels the mean of each patch
function orderOf(map, [rows, columns]) {
  const sums = new Float64Array(rows * columns);
  const times = new Float64Array(rows * columns);
  for (let i = 0; i < map.values.length; i++) {
    const k = Math.floor((Math.floor(i / map.w) * rows) / map.h) * columns + Math.floor(((i % map.w) * columns) / map.w);
    sums[k] += map.values[i];
    times[k]++;
  }
  const means = sums.map((s, k) => s / (times[k] || 1));
  return Array.from(means.keys()).sort((a, b) => means[b] - means[a] || a - b);
}

export async function askScores(p, r, grid, remove, done) {
  try {
    const found = await (await forPicture(p, "/scores", { grid, remove, target: r.target, against: r.against })).json();
    Object.assign(p.labels, found.labels);
    done(found);
  } catch (error) {
    failed(error);
  }
}

export async function askFile(format) {
  const [p, r] = [picture(), run()];
  alertUser("The server is writing the file\u2026", "note");
  try {
    const methods = Object.fromEntries(Object.entries(chosen()).filter(([n]) => !modelNow().problems[n]));
    const answer = await forPicture(p, "/file", { format, methods, target: r.target, against: r.against });
    download(`${p.name.replace(/\.[^.]*$/, "")}.${format}`, await answer.blob());
    clearAlert();
  } catch (error) {
    failed(error);
  }
}

// -- what stands on the page ------------------------------------------------------------------------------------------
export function liveBar() {
  const models = catalogue().models;
  return h("div", { class: "controls" },
    models.length > 1
      ? h("label", { class: "field" }, h("span", { class: "unseen" }, "Model"), h("select", { "data-key": "model", onchange: (e) => useModel(e.target.value) }, models.map((m) => h("option", { selected: m.name === doc.live.model }, m.name))))
      : h("span", { class: "model" }, doc.live.model),
    h("button", { class: "small", "data-key": "methods", onclick: chooseMethods }, `Methods (${Object.keys(doc.methods).length})`),
    picture() ? sources() : null,
    running.size ? h("button", { class: "small warm", "data-key": "cancel", onclick: cancel }, `Cancel (${running.size} left)`) : null);
}

function cancel() {
  stopMaps();
  say("Cancelled");
  change();
}

function sources() {
  const input = h("input", { type: "file", accept: "image/*", class: "unseen", tabindex: -1, "aria-label": "Picture file", id: "file", onchange: (e) => e.target.files[0] && sendPicture(e.target.files[0]) });
  return [
    h("button", { class: "small", "data-key": "open", onclick: () => input.click() }, "Choose a picture"), input,
    h("button", { class: "small", "data-key": "webcam", onclick: webcam }, "Webcam")];
}

export function drawWelcome() {
  if (!live() || picture()) return $("welcome")?.remove();
  if ($("welcome")) return;
  document.querySelector("main").prepend(
    h("section", { id: "welcome", "aria-label": "Choose a picture" },
      h("h2", {}, "What did the model look at?"),
      h("p", {}, "Drop a picture anywhere, paste one, or choose:"),
      h("div", { class: "controls" }, sources()),
      h("p", { class: "hint" }, "Or start with one of these. Pictures go to this server's memory and nowhere else."),
      h("div", { class: "controls samples" }, catalogue().samples.map(({ name, src }) => h("button", { class: "sample", onclick: () => openKnown(`/samples/${encodeURIComponent(name)}`, { post: true }) }, h("img", { src, alt: "" }), h("span", {}, name.replace(/\.\w+$/, "").replaceAll("_", " ")))))));
}

async function webcam() {
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { width: { ideal: 1280 } } });
  } catch (error) {
    return alertUser(`No webcam frame: ${error.message}. Browsers allow it on localhost and https only.`);
  }
  const video = h("video", { autoplay: true, muted: true, playsInline: true, "aria-label": "Webcam" });
  video.srcObject = stream;
  const box = document.body.appendChild(h("dialog", { "aria-label": "Webcam", onclose: end }, video, h("div", { class: "controls" }, h("button", { class: "small", onclick: shoot }, "Take this frame"), h("button", { class: "small", onclick: () => box.close() }, "Close"))));
  function end() {
    stream.getTracks().forEach((t) => t.stop());
    box.remove();
  }
  async function shoot() {
    const canvas = h("canvas", { width: video.videoWidth, height: video.videoHeight });
    canvas.getContext("2d").drawImage(video, 0, 0);
    const blob = await new Promise((done) => canvas.toBlob(done, "image/jpeg", 0.92));
    box.close();
    sendPicture(blob, "webcam.jpg");
  }
  box.showModal();
}

function listen() {
  const first = (list) => [...(list ?? [])].find((f) => f instanceof File);
  addEventListener("dragover", (e) => (e.preventDefault(), document.documentElement.classList.add("dropping")));
  addEventListener("dragleave", (e) => e.relatedTarget || document.documentElement.classList.remove("dropping"));
  addEventListener("drop", (e) => {
    e.preventDefault();
    document.documentElement.classList.remove("dropping");
    const file = first(e.dataTransfer.files);
    if (file) sendPicture(file);
  });
  addEventListener("paste", (e) => {
    const file = first(e.clipboardData?.files);
    if (file) sendPicture(file, file.name || "pasted.png");
  });
  addEventListener("pagehide", stopMaps);
}

const FIRST = ["raw_attention", "rollout", "grad_cam", "ag_cam", "attcat", "transformer_mm", "vtranm", "saliency"];

function usual() {
  const { problems } = modelNow();
  const able = catalogue().methods.filter((m) => m.cheap && !problems[m.name]).map((m) => m.name);
  const wanted = FIRST.filter((n) => able.includes(n));
  return Object.fromEntries((wanted.length >= 4 ? wanted : able.slice(0, 8)).map((n) => [n, {}]));
}

function fromLink(text) {
  try {
    const found = JSON.parse(text);
    const known = new Set(catalogue().methods.map((m) => m.name));
    const kept = Object.entries(found).filter(([n, s]) => known.has(n) && s && typeof s === "object");
    return kept.length ? Object.fromEntries(kept) : usual();
  } catch {
    return usual();
  }
}

export async function startLive(given) {
  if (!live()) return;
  token = given.get("token") ?? "";
  try {
    doc.live.about = await (await ask("/about")).json();
  } catch (error) {
    doc.live.about = { models: [{ name: "", size: [0, 0], problems: {}, labels: [] }], methods: [], samples: [], limits: {} };
    doc.live.model = "";
    doc.live.chosen = {};
    return alertUser(error.message);
  }
  const names = catalogue().models.map((m) => m.name);
  doc.live.model = names.includes(given.get("model")) ? given.get("model") : names[0];
  doc.live.chosen = {};
  describeModel();
  const wanted = given.has("ms") ? fromLink(given.get("ms")) : usual();
  if (given.has("token")) keepInLink("token", token);
  setMethods(wanted);
  listen();
  if (given.has("id")) await openKnown(`/pictures/${encodeURIComponent(given.get("id"))}`);
}
