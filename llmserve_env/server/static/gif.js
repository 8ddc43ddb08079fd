// Encodes frames as an animated GIF (89a): one palette for all, and of each frame only what has changed.
const MAX_COLOURS = 255;
const TRANSPARENT = 255;
const MAX_CODES = 4096;

const key = (data, i) => ((data[i] >> 3) << 10) | ((data[i + 1] >> 3) << 5) | (data[i + 2] >> 3);

// The most frequent colours of some frames, in five bits per channel.
function paletteOf(frames) {
  const seen = new Map();
  for (const { data } of frames) {
    for (let i = 0; i < data.length; i += 4) {
      const found = key(data, i);
      const entry = seen.get(found);
      if (entry) entry.count += 1;
      else seen.set(found, { count: 1, rgb: [data[i], data[i + 1], data[i + 2]] });
    }
  }
  return [...seen.values()].sort((a, b) => b.count - a.count).slice(0, MAX_COLOURS).map(({ rgb }) => rgb);
}

function nearest(palette, r, g, b) {
  let best = 0;
  let least = Infinity;
  palette.forEach(([pr, pg, pb], i) => {
    const distance = (pr - r) ** 2 + (pg - g) ** 2 + (pb - b) ** 2;
    if (distance < least) [best, least] = [i, distance];
  });
  return best;
}

class Bytes {
  constructor() { this.list = []; }
  byte(...values) { for (const value of values) this.list.push(value & 255); }
  short(...values) { for (const value of values) this.byte(value, value >> 8); }
  text(value) { for (const letter of value) this.byte(letter.charCodeAt(0)); }
}

// GIF's variant of LZW for 8-bit indices, in blocks of at most 255 bytes.
function compress(out, indices) {
  const CLEAR = 256;
  const bytes = [];
  let [held, bits, width, next, codes] = [0, 0, 9, CLEAR + 2, new Map()];
  const emit = (code) => {
    held |= code << bits;
    for (bits += width; bits >= 8; bits -= 8, held >>>= 8) bytes.push(held & 255);
  };
  emit(CLEAR);
  let prefix = indices[0];
  for (let i = 1; i < indices.length; i += 1) {
    const pair = (prefix << 8) | indices[i];
    const known = codes.get(pair);
    if (known !== undefined) {
      prefix = known;
      continue;
    }
    emit(prefix);
    if (next === MAX_CODES) {
      emit(CLEAR);
      [width, next, codes] = [9, CLEAR + 2, new Map()];
    } else {
      codes.set(pair, next);
      if (next === 1 << width) width += 1;
      next += 1;
    }
    prefix = indices[i];
  }
  emit(prefix);
  emit(CLEAR + 1);
  if (bits) bytes.push(held & 255);
  out.byte(8);
  for (let i = 0; i < bytes.length; i += 255) {
    const block = bytes.slice(i, i + 255);
    out.byte(block.length, ...block);
  }
  out.byte(0);
}

export class Gif {
  // `samples`: frames that show all the colours there will be.
  constructor(width, height, samples) {
    Object.assign(this, { width, height, palette: paletteOf(samples), nearby: new Map(), before: null, out: new Bytes() });
    const { out } = this;
    out.text("GIF89a");
    out.short(width, height);
    out.byte(0xf7, 0, 0);
    for (let i = 0; i < 256; i += 1) out.byte(...(this.palette[i] ?? [0, 0, 0]));
    out.byte(0x21, 0xff, 11);
    out.text("NETSCAPE2.0");
    out.byte(3, 1, 0, 0, 0);
  }

  indexOf(data, i) {
    const found = key(data, i);
    if (!this.nearby.has(found)) this.nearby.set(found, nearest(this.palette, data[i], data[i + 1], data[i + 2]));
    return this.nearby.get(found);
  }

  add({ data }, delay_ms) {
    const { out, width, height, before } = this;
    const indices = new Uint8Array(width * height);
    for (let i = 0; i < indices.length; i += 1) indices[i] = this.indexOf(data, 4 * i);
    const changed = before ? indices.map((index, i) => (index === before[i] ? TRANSPARENT : index)) : indices;
    this.before = indices;
    out.byte(0x21, 0xf9, 4, before ? 0x05 : 0x04);
    out.short(delay_ms / 10);
    out.byte(TRANSPARENT, 0, 0x2c);
    out.short(0, 0, width, height);
    out.byte(0);
    compress(out, changed);
  }

  finish() {
    this.out.byte(0x3b);
    return new Uint8Array(this.out.list);
  }
}
