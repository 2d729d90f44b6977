// What pack.py made short, as numbers again.
export function bytes(text) {
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}

export async function inflate(text) {
  const stream = new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// {shape, most, bits, data} -> {h, w, values}
export async function decodeMap(packed) {
  const [h, w] = packed.shape;
  const values = new Float32Array(h * w);
  if (packed.bits === 16) {
    const steps = new DataView(bytes(packed.data).buffer);
    for (let i = 0; i < values.length; i++) {
      const q = steps.getInt16(2 * i, true);
      values[i] = q === -32768 ? NaN : (q * packed.most) / 32767;
    }
  } else {
    const steps = new Int8Array((await inflate(packed.data)).buffer);
    for (let i = 0; i < values.length; i++) values[i] = Math.sign(steps[i]) * (steps[i] / 127) ** 2 * packed.most;
  }
  return { h, w, values };
}

export function decodeOrder(text) {
  const view = new DataView(bytes(text).buffer);
  return Uint16Array.from({ length: view.byteLength / 2 }, (_, i) => view.getUint16(2 * i, true));
}

// One block of attention, kept as bytes until a row is read.
export async function decodeBlock(block) {
  return { ...block, steps: await inflate(block.data), tops: bytes(block.most), data: null, most: null };
}

// The row of a token in each head: {patches: Float32Array, others: sum over class and register tokens}
export function attentionRow(block, head, token) {
  const n = block.tokens;
  const most = (block.tops[head * n + token] / 255) ** 2;
  const at = (head * n + token) * n;
  const [rows, columns] = block.grid;
  const prefix = n - rows * columns;
  const values = new Float32Array(rows * columns);
  let others = 0;
  for (let k = 0; k < n; k++) {
    const a = most * (block.steps[at + k] / 31) ** 2;
    if (k < prefix) others += a;
    else values[k - prefix] = a;
  }
  return { h: rows, w: columns, values, others };
}
