// An .npz is a zip of .npy files: stored, not deflated, which needs no library.
let table = null;
function crc32(data) {
  table ??= Uint32Array.from({ length: 256 }, (_, n) => {
    for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
    return n >>> 0;
  });
  let c = 0xffffffff;
  for (const b of data) c = table[(c ^ b) & 255] ^ (c >>> 8);
  return (c ^ 0xffffffff) >>> 0;
}

export function npy(values, shape) {
  const length = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
  const text = `{'descr': '<f4', 'fortran_order': False, 'shape': (${length}), }`;
  const header = text.padEnd(Math.ceil((text.length + 11) / 64) * 64 - 11) + "\n";
  const out = new Uint8Array(10 + header.length + 4 * values.length);
  out.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0]);
  new DataView(out.buffer).setUint16(8, header.length, true);
  out.set(new TextEncoder().encode(header), 10);
  const view = new DataView(out.buffer, 10 + header.length);
  values.forEach((v, i) => view.setFloat32(4 * i, v, true));
  return out;
}

export function zip(files) {
  const parts = [];
  const directory = [];
  let offset = 0;
  for (const [name, data] of files) {
    const path = new TextEncoder().encode(name);
    const fields = [20, 0x800, 0, 0, 0x21, crc32(data), data.length, data.length, path.length, 0];
    const widths = [2, 2, 2, 2, 2, 4, 4, 4, 2, 2];
    const local = record([0x04034b50, ...fields], [4, ...widths]);
    parts.push(local, path, data);
    directory.push(record([0x02014b50, 20, ...fields, 0, 0, 0, 0, offset], [4, 2, ...widths, 2, 2, 2, 4, 4]), path);
    offset += local.length + path.length + data.length;
  }
  const size = directory.reduce((s, d) => s + d.length, 0);
  const end = record([0x06054b50, 0, 0, files.length, files.length, size, offset, 0], [4, 2, 2, 2, 2, 4, 4, 2]);
  return new Blob([...parts, ...directory, end], { type: "application/zip" });
}

function record(values, widths) {
  const out = new Uint8Array(widths.reduce((s, w) => s + w, 0));
  const view = new DataView(out.buffer);
  let at = 0;
  values.forEach((v, i) => {
    if (widths[i] === 4) view.setUint32(at, v, true);
    else view.setUint16(at, v, true);
    at += widths[i];
  });
  return out;
}
