// Lapis in browsers and in Node: csrc/lapis.h, compiled to WebAssembly. This file is the npm package lapis-snn (js/), and
// the live page holds it too. It needs nothing but the two modules.

const ERROR_BYTES = 504;
const ERROR_MESSAGE = 8;
const POINTERS_PER_BLOCK = 7;
// Runs whose times are kept.
const REMEMBERED = 32;
// Larger pictures are more than the canvases of some phones hold.
const MOST_PIXELS = 50e6;
// What the C library asks of a system that it does not have here, and that nothing in the engine needs.
const NOT_SUPPORTED = 58;
/** Anything that went wrong; `status` and `rule` are those of lapis_error in csrc/lapis.h, 0 where C was not asked. */
export class LapisError extends Error {
  constructor(message, status = 0, rule = 0) {
    super(message);
    Object.assign(this, { name: "LapisError", status, rule });
  }
}

/** The network of a packed file, from its address or its bytes, in the fastest engine that answers rightly. */
export async function load(source, { engines = packaged(), probe = noise(), logits } = {}) {
  const file = await bytesOf(source);
  const picture = await toPixels(probe);
  const opened = [];
  for (const { name, code } of engines) {
    const module = await bytesOf(code);
    if (WebAssembly.validate(module)) opened.push(Object.assign(await Network.open(module, file), { engine: name }));
  }
  const answers = opened.map((network) => network.run(network.prepare(picture)).integers.join());
  const right = answers.indexOf(logits ? logits.join() : answers.at(-1));
  if (right < 0) throw new LapisError("no engine gives the right answer here");
  return opened[right];
}

/** Fastest first. The last one is exact wherever it runs; early browsers multiply relaxed vectors in another way. */
function packaged() {
  return [
    { name: "relaxed 128-bit vectors", code: new URL("./engine_relaxed.wasm", import.meta.url) },
    { name: "128-bit vectors", code: new URL("./engine.wasm", import.meta.url) },
  ];
}

/** A picture that shows every kind of pixel, for the comparison of engines. */
function noise(side = 64) {
  const data = new Uint8Array(3 * side * side);
  for (let n = 0, state = 1; n < data.length; n++) {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    data[n] = state >>> 24;
  }
  return { data, width: side, height: side };
}

/** What an address holds; in Node a path or the address of a file will do. */
async function bytesOf(source) {
  if (source instanceof Uint8Array) return source;
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  const node = globalThis.process?.getBuiltinModule;
  const here = globalThis.location?.href ?? node?.("node:url").pathToFileURL("./").href;
  const url = new URL(source, here);
  if (url.protocol === "file:" && node) return new Uint8Array(await node("node:fs/promises").readFile(url));
  const response = await fetch(url);
  if (!response.ok) throw new LapisError(`${url} cannot be read: ${response.status} ${response.statusText}`);
  return new Uint8Array(await response.arrayBuffer());
}

/**
 * A picture as {pixels, width, height}, three bytes per pixel: of {data, width, height} with three or four bytes per
 * pixel (ImageData, or a decoder's), of a picture file (bytes or Blob), or of what a canvas draws. Alpha is left out.
 */
export async function toPixels(source) {
  const isFile = source instanceof Uint8Array || source instanceof ArrayBuffer;
  const file = isFile ? new Blob([source]) : source;
  if (!(file instanceof Blob)) return file?.data ? withoutAlpha(file) : draw(file);
  if (!globalThis.createImageBitmap)
    throw new LapisError("Node does not decode pictures; decode it and give {data, width, height}");
  // Turned as the camera was held, and with the samples as they are stored.
  const bitmap = await createImageBitmap(file, { colorSpaceConversion: "none", premultiplyAlpha: "none" }).catch(() => {
    throw new LapisError("it is not a picture that this browser reads; use PNG, JPEG or WebP");
  });
  try {
    return draw(bitmap);
  } finally {
    bitmap.close();
  }
}

/** A canvas, an image, a video or a bitmap as pixels. */
export function draw(source) {
  const width = source?.videoWidth || source?.naturalWidth || source?.width;
  const height = source?.videoHeight || source?.naturalHeight || source?.height;
  if (!(width > 0) || !(height > 0)) throw new LapisError("it has no pixels");
  if (width * height > MOST_PIXELS)
    throw new LapisError(`it has ${width} x ${height} pixels; use at most ${MOST_PIXELS / 1e6} million`);
  const pen = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  pen.drawImage(source, 0, 0);
  return withoutAlpha(pen.getImageData(0, 0, width, height));
}

function withoutAlpha({ data, width, height }) {
  const channels = data.length / (width * height);
  if (channels !== 3 && channels !== 4)
    throw new LapisError(`${data.length} bytes are not 3 or 4 for each of ${width} x ${height} pixels`);
  if (channels === 3) return { pixels: data, width, height };
  const pixels = new Uint8Array(width * height * 3);
  for (let n = 0, at = 0; n < data.length; n += 4) {
    pixels[at++] = data[n];
    pixels[at++] = data[n + 1];
    pixels[at++] = data[n + 2];
  }
  return { pixels, width, height };
}

export class Network {
  /** Compile the module and let it open the packed file; the file's errors are those of the C reader. */
  static async open(code, file) {
    const network = Object.assign(new Network(), { times: [] });
    const system = { clock_time_get: (_clock, _precision, at) => network.tellTime(at) };
    const asked = new Proxy(system, { get: (known, name) => known[name] ?? (() => NOT_SUPPORTED) });
    const { instance } = await WebAssembly.instantiate(code, { wasi_snapshot_preview1: asked });
    network.c = instance.exports;
    network.c._initialize();
    network.error = network.take(ERROR_BYTES);
    network.openFile(file);
    return network;
  }

  openFile(file) {
    const { c } = this;
    const out = this.take(4);
    this.with(file, (at) => this.check(c.lapis_open_memory(at, file.length, 1, 0, out, this.error)));
    this.network = this.view().getUint32(out, true);
    c.free(out);
    const sizes = new BigInt64Array(c.memory.buffer, c.lapis_sizes_of(this.network), 8);
    const [size, , tokens, classes, width, depth, , hidden] = Array.from(sizes, Number);
    const names = Array.from({ length: classes }, (_, n) => {
      const at = c.lapis_class_name(this.network, BigInt(n));
      return at ? this.text(at) : String(n);
    });
    Object.assign(this, { size, classes: names, codeBytes: Number(c.lapis_trace_bytes(this.network)) });
    this.logits = this.take(8 * classes);
    this.codes = this.take(this.codeBytes);
    this.trace = this.take(4 * POINTERS_PER_BLOCK * depth);
    // Block by block; the hidden layer is the last point of each.
    let at = this.codes;
    for (let n = 0; n < POINTERS_PER_BLOCK * depth; n++) {
      this.view().setUint32(this.trace + 4 * n, at, true);
      at += tokens * (n % POINTERS_PER_BLOCK === POINTERS_PER_BLOCK - 1 ? hidden : width);
    }
  }

  /** The likeliest classes of a picture of any size, best first, equal ones in their order: label, score, index, logit. */
  async predict(picture, topK = 5) {
    if (!Number.isInteger(topK) || topK < 1)
      throw new LapisError(`topK=${topK} is not a number of classes; use an integer of at least 1`);
    const { logits } = this.run(this.prepare(await toPixels(picture)));
    const most = Math.max(...logits);
    const shares = logits.map((logit) => Math.exp(logit - most));
    const sum = shares.reduce((a, b) => a + b, 0);
    const ranked = logits.map((logit, index) => ({
      label: this.classes[index],
      score: shares[index] / sum,
      index,
      logit,
    }));
    return ranked.sort((a, b) => b.logit - a.logit).slice(0, topK);
  }

  /** Memory may have grown and moved since the last look. */
  view() {
    return new DataView(this.c.memory.buffer);
  }

  tellTime(at) {
    this.view().setBigUint64(at, BigInt(Math.round(performance.now() * 1e6)), true);
    return 0;
  }

  /** A string of C. */
  text(at) {
    const bytes = new Uint8Array(this.c.memory.buffer, at);
    return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
  }

  take(bytes) {
    const at = this.c.malloc(bytes);
    if (!at) throw new LapisError(`there are no ${Math.ceil(bytes / 1e6)} MB of memory left`);
    return at;
  }

  /** Call `use` with the address of a copy of `bytes`, and free it afterwards. */
  with(bytes, use) {
    const at = this.take(bytes.length);
    try {
      new Uint8Array(this.c.memory.buffer, at, bytes.length).set(bytes);
      return use(at);
    } finally {
      this.c.free(at);
    }
  }

  check(status) {
    if (!status) return;
    // The rule of docs/format.md that a file breaks; 0 for other errors.
    const rule = this.view().getInt32(this.error + 4, true);
    throw new LapisError(this.text(this.error + ERROR_MESSAGE), status, rule);
  }

  /** A picture {pixels, width, height}, three bytes per pixel, resized and cut as the network takes it. */
  prepare({ pixels, width, height }) {
    const { c, size } = this;
    const out = this.take(size * size * 3);
    try {
      this.with(pixels, (at) =>
        this.check(c.lapis_prepare(this.network, at, BigInt(height), BigInt(width), out, this.error)),
      );
      return new Uint8Array(c.memory.buffer, out, size * size * 3).slice();
    } finally {
      c.free(out);
    }
  }

  /** Logits, as integers and as the real numbers that they stand for, of pixels that were prepared. */
  run(pixels, trace = 0) {
    const { c } = this;
    const engine = c.lapis_network_engine(this.network);
    const begun = performance.now();
    const status = this.with(pixels, (at) => c.lapis_engine_run(engine, at, 1n, this.logits, trace, 0));
    this.times = [...this.times, performance.now() - begun].slice(-REMEMBERED);
    if (status) throw new LapisError(`the engine stopped with status ${status}`, status);
    const integers = Array.from(new BigInt64Array(c.memory.buffer, this.logits, this.classes.length));
    return { integers, logits: integers.map((logit) => c.lapis_real(this.network, logit)) };
  }

  /** The same with the codes of all measuring points, block by block. */
  watch(pixels) {
    const answer = this.run(pixels, this.trace);
    return { ...answer, codes: new Int8Array(this.c.memory.buffer, this.codes, this.codeBytes).slice() };
  }

  /** The median milliseconds of the last runs: the first ones wait for the browser to compile the module. */
  get milliseconds() {
    return this.times.toSorted((a, b) => a - b)[this.times.length >> 1];
  }
}
