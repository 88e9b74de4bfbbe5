// The C engine in this tab: csrc/lapis.h, compiled to WebAssembly. Nothing is drawn here.
"use strict";

const ERROR_BYTES = 504;
const ERROR_MESSAGE = 8;
const POINTERS_PER_BLOCK = 7;
// Runs whose times are kept.
const REMEMBERED = 32;
// What the C library asks of a system that it does not have here, and that nothing in the engine needs.
const NOT_SUPPORTED = 58;

Lapis.Engine = class {
  /** Compile the module and let it open the packed file; the file's errors are those of the C reader. */
  static async open(code, file) {
    const engine = Object.assign(new Lapis.Engine(), { times: [] });
    const system = { clock_time_get: (_clock, _precision, at) => engine.tellTime(at) };
    const asked = new Proxy(system, { get: (known, name) => known[name] ?? (() => NOT_SUPPORTED) });
    const { instance } = await WebAssembly.instantiate(code, { wasi_snapshot_preview1: asked });
    engine.c = instance.exports;
    engine.c._initialize();
    engine.error = engine.take(ERROR_BYTES);
    engine.openFile(file);
    return engine;
  }

  openFile(file) {
    const { c } = this;
    const out = this.take(4);
    this.with(file, (at) => this.check(c.lapis_open_memory(at, file.length, 1, 0, out, this.error)));
    this.network = this.view().getUint32(out, true);
    c.free(out);
    const sizes = new BigInt64Array(c.memory.buffer, c.lapis_sizes_of(this.network), 8);
    const [size, , tokens, classes, width, depth, , hidden] = Array.from(sizes, Number);
    Object.assign(this, { size, classes, codeBytes: Number(c.lapis_trace_bytes(this.network)) });
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

  /** Memory may have grown and moved since the last look. */
  view() {
    return new DataView(this.c.memory.buffer);
  }

  tellTime(at) {
    this.view().setBigUint64(at, BigInt(Math.round(performance.now() * 1e6)), true);
    return 0;
  }

  take(bytes) {
    const at = this.c.malloc(bytes);
    if (!at) throw new Error(`the browser has no ${Math.ceil(bytes / 1e6)} MB of memory left`);
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
    const text = new Uint8Array(this.c.memory.buffer, this.error + ERROR_MESSAGE, ERROR_BYTES - ERROR_MESSAGE);
    const error = new Error(new TextDecoder().decode(text.slice(0, text.indexOf(0))));
    // The rule of docs/format.md that a file breaks; 0 for other errors.
    throw Object.assign(error, { status, rule: this.view().getInt32(this.error + 4, true) });
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
    if (status) throw new Error(`the engine stopped with status ${status}`);
    const integers = Array.from(new BigInt64Array(c.memory.buffer, this.logits, this.classes));
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
};
