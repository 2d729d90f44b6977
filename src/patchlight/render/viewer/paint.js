// Scores to colours: the same scales, colour maps and opacities as the library's own overlays.
import { bytes } from "./decode.js";

const PALETTES = JSON.parse(document.getElementById("palettes").textContent);
const decoded = new Map();

export const colourMaps = (kind) => Object.keys(PALETTES[kind]);

export function palette(kind, name) {
  const key = `${kind}/${name}`;
  if (!decoded.has(key)) decoded.set(key, bytes(PALETTES[kind][name] ?? Object.values(PALETTES[kind])[0]));
  return decoded.get(key);
}

export function isSigned(map) {
  if (map.signed === undefined) {
    let low = 0;
    let high = 0;
    for (const v of map.values) {
      if (v < low) low = v;
      if (Math.abs(v) > high) high = Math.abs(v);
    }
    map.signed = low < -1e-3 * high;
  }
  return map.signed;
}

function quantile(sorted, q) {
  if (!sorted.length) return 0;
  const at = q * (sorted.length - 1);
  const low = Math.floor(at);
  return sorted[low] + (at - low) * (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]);
}

// (low, high) over all maps of a method: the percentiles 0.5 and 99.5, or -m..m when signed
export function limits(maps, signed, positive = false) {
  const every = [];
  for (const map of maps) {
    const step = Math.max(1, Math.floor(map.values.length / 5000));
    for (let i = 0; i < map.values.length; i += step) {
      const v = map.values[i];
      if (Number.isFinite(v)) every.push(signed ? Math.abs(v) : positive ? Math.max(0, v) : v);
    }
  }
  const sorted = Float64Array.from(every).sort();
  if (signed) {
    const most = quantile(sorted, 0.995) || sorted[sorted.length - 1] || 0;
    return [-most, most];
  }
  const low = positive ? 0 : quantile(sorted, 0.005);
  const high = quantile(sorted, 0.995);
  return high > low ? [low, high] : [sorted[0] ?? 0, sorted[sorted.length - 1] ?? 0];
}

// Each value by its rank among all of its map, 0 to 1; of signed ones the rank of the magnitude, with the sign
export function ranked(map, signed) {
  const key = signed ? "ranksSigned" : "ranks";
  if (!map[key]) {
    const size = signed ? map.values.map(Math.abs) : map.values;
    const order = Array.from(size.keys()).sort((a, b) => size[a] - size[b]);
    const out = new Float32Array(size.length);
    for (let i = 0; i < order.length; ) {
      let j = i;
      while (j + 1 < order.length && size[order[j + 1]] === size[order[i]]) j++;
      for (let k = i; k <= j; k++) {
        const share = order.length > 1 ? (i + j) / 2 / (order.length - 1) : 0;
        out[order[k]] = signed ? Math.sign(map.values[order[k]]) * share : share;
      }
      i = j + 1;
    }
    map[key] = out;
  }
  return map[key];
}

// What is to be drawn of a map: numbers and their scale
export function scaled(map, view, span) {
  const signed = view.sign === "signed" || (view.sign === "auto" && isSigned(map));
  if (view.scale === "percentile") return { values: ranked(map, signed), span: signed ? [-1, 1] : [0, 1], signed };
  return { values: map.values, span, signed };
}

function step(v, [low, high], signed) {
  if (!(v === v)) return signed ? 128 : 0;
  const most = Math.max(Math.abs(low), Math.abs(high));
  const s = signed ? 128 + (most > 1e-30 ? (127 * v) / most : 0) : high - low > 1e-30 ? (255 * (v - low)) / (high - low) : 0;
  return s < 0 ? 0 : s > 255 ? 255 : Math.round(s);
}

// Bilinear with half-pixel centres, as the library enlarges tokens
function enlarged(values, h, w, H, W) {
  const out = new Float32Array(H * W);
  for (let y = 0; y < H; y++) {
    const sy = Math.max(0, ((y + 0.5) * h) / H - 0.5);
    const y0 = Math.min(h - 1, Math.floor(sy));
    const y1 = Math.min(h - 1, y0 + 1);
    const fy = sy - y0;
    for (let x = 0; x < W; x++) {
      const sx = Math.max(0, ((x + 0.5) * w) / W - 0.5);
      const x0 = Math.min(w - 1, Math.floor(sx));
      const x1 = Math.min(w - 1, x0 + 1);
      const fx = sx - x0;
      const top = values[y0 * w + x0] * (1 - fx) + values[y0 * w + x1] * fx;
      const low = values[y1 * w + x0] * (1 - fx) + values[y1 * w + x1] * fx;
      out[y * W + x] = top * (1 - fy) + low * fy;
    }
  }
  return out;
}

const scratch = document.createElement("canvas");

// A map on a rectangle of a canvas; opacity grows with the value unless `solid`
export function paintMap(ctx, map, [x, y, w, h], view, span, { solid = false, detail = 320 } = {}) {
  const found = scaled(map, view, span);
  let { values } = found;
  let [rows, columns] = [map.h, map.w];
  if (view.smooth) {
    const W = Math.max(columns, Math.min(detail, Math.round(w)));
    const H = Math.max(rows, Math.min(detail, Math.round(h)));
    values = enlarged(values, rows, columns, H, W);
    [rows, columns] = [H, W];
  }
  const colours = palette(found.signed ? "diverging" : "sequential", found.signed ? view.diverging : view.sequential);
  scratch.width = columns;
  scratch.height = rows;
  const brush = scratch.getContext("2d");
  const image = brush.createImageData(columns, rows);
  for (let i = 0; i < values.length; i++) {
    const s = step(values[i], found.span, found.signed);
    const strength = found.signed ? Math.min(1, Math.abs(s - 128) / 127) : s / 255;
    image.data.set([colours[3 * s], colours[3 * s + 1], colours[3 * s + 2], solid ? 255 : 255 * view.opacity * strength], 4 * i);
  }
  brush.putImageData(image, 0, 0);
  ctx.imageSmoothingEnabled = view.smooth;
  ctx.drawImage(scratch, x, y, w, h);
  ctx.imageSmoothingEnabled = true;
}

// The colours of a scale from left to right
export function legend(signed, view, width = 96, height = 6) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const ctx = canvas.getContext("2d");
  const colours = palette(signed ? "diverging" : "sequential", signed ? view.diverging : view.sequential);
  for (let i = 0; i < width; i++) {
    const s = Math.round((255 * i) / (width - 1));
    ctx.fillStyle = `rgb(${colours[3 * s]},${colours[3 * s + 1]},${colours[3 * s + 2]})`;
    ctx.fillRect(i, 0, 1, height);
  }
  return canvas;
}
