// The operator itself, on the codes of this run: distance, affinity, row exponent, weights, readout. Where the page cannot
// compute weights from codes, they were recorded. Nothing is drawn here.
"use strict";

const Lapis = {};

/** Compressed, base64 text to bytes. */
Lapis.inflate = async (text) => {
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

/** What attention is made of beside the codes: delays by place, stored affinities by distance, recorded weights. */
Lapis.tables = async ({ delays, stored, weights }) => {
  const numbers = async (Type, text) => new Type((await Lapis.inflate(text)).buffer);
  return {
    delays: delays && (await numbers(Uint32Array, delays.table)),
    stored: stored && {
      us: await numbers(Uint32Array, stored.mantissa),
      es: await numbers(Int32Array, stored.exponent),
    },
    weights: weights && {
      steps: await numbers(Float32Array, weights.steps),
      integers: await numbers(Int8Array, weights.integers),
    },
  };
};

/** A run: its facts, and views of its codes. */
Lapis.Run = class {
  static async open(data) {
    const bytes = await Lapis.inflate(data.codes);
    return new Lapis.Run(data, new Int8Array(bytes.buffer), await Lapis.tables(data));
  }

  constructor(data, codes, tables) {
    Object.assign(this, { data, codes }, tables);
    this.T = data.config.window;
    this.H = data.config.heads;
    this.N = data.tokens;
    this.C = data.channels;
    this.grid = data.grid;
    this.starts = new Map();
    this.membranes = new Map();
    let at = 0;
    for (const block of data.blocks) {
      for (const point of data.points) {
        this.starts.set(`${block} ${point}`, at);
        at += this.N * this.width(point);
      }
    }
    if (at !== codes.length) throw new Error(`expected ${at} codes, found ${codes.length}`);
  }

  /** A token by name. Rows and columns count from 0, as blocks, heads, channels and steps do. */
  name(token) {
    if (token === 0) return "class token";
    return `patch row ${Math.floor((token - 1) / this.grid)}, column ${(token - 1) % this.grid}`;
  }

  /** Neurons of one token at a measuring point. */
  width(point) {
    const { width, mlp_ratio } = this.data.config;
    return point === "mlp_hidden" ? width * mlp_ratio : width;
  }

  low(point) {
    const coding = this.data.config.coding;
    return coding[point === "q" || point === "k" ? "qk" : point] === "signed" ? -this.T : 0;
  }

  /** The minimum code that fires at a point of a block. */
  minCode(block, point) {
    const codes = this.data.config.min_code[point === "q" || point === "k" ? "qk" : point];
    return Array.isArray(codes) ? codes[block] : codes;
  }

  /** Codes of one token at a point. */
  token(block, point, token) {
    const width = this.width(point);
    const start = this.starts.get(`${block} ${point}`) + token * width;
    return this.codes.subarray(start, start + width);
  }

  /** Codes of one token and head: C of them. */
  head(block, point, token, head) {
    return this.token(block, point, token).subarray(head * this.C, (head + 1) * this.C);
  }

  /** Leak steps that stand for the place of two tokens; 0 where positions are absolute. */
  delay(block, head, i, j) {
    if (!this.delays) return 0;
    const { grid } = this;
    const span = 2 * grid - 1;
    let offset;
    if (i === 0) offset = j === 0 ? span * span + 2 : span * span;
    else if (j === 0) offset = span * span + 1;
    else {
      const dy = Math.floor((i - 1) / grid) - Math.floor((j - 1) / grid);
      const dx = ((i - 1) % grid) - ((j - 1) % grid);
      offset = (dy + grid - 1) * span + (dx + grid - 1);
    }
    return this.delays[(block * this.data.delays.offsets + offset) * this.H + head];
  }

  tau(block, head) {
    return this.data.tau[block][head];
  }

  /** Whether weights come from the distance of codes, by a leak or by a table; else they were recorded. */
  get byDistance() {
    return Boolean(this.data.tau || this.data.stored);
  }

  /** Whether a block gives weights to pairs of tokens. */
  weighs(block) {
    return this.byDistance || Boolean(this.data.weights?.weighing.includes(block));
  }

  /** What maps can show. */
  get shows() {
    return this.byDistance ? ["weight", "affinity", "distance"] : ["weight", "distance"];
  }

  /** D_ij for one query and all keys, the delay of the place included. */
  distances(block, head, i, sums = new Array(this.N)) {
    const { codes, N, C, delays } = this;
    const width = this.width("k");
    const q = this.head(block, "q", i, head);
    // Plain loops: a network has many rows, and the live page asks for all of them.
    for (let j = 0, at = this.starts.get(`${block} k`) + head * C; j < N; j++, at += width) {
      let sum = delays ? this.delay(block, head, i, j) : 0;
      for (let c = 0; c < C; c++) sum += Math.abs(q[c] - codes[at + c]);
      sums[j] = sum;
    }
    return sums;
  }

  /**
   * D, A, k and W of one query: what the operator makes of its row. Both kinds of row come lifted by a power of two,
   * 2**lift, which shifts the exponent and cancels in the weights.
   */
  row(block, head, i) {
    const D = this.distances(block, head, i);
    if (!this.byDistance) return { D, ...this.recorded(block, head, i) };
    const real = this.data.tau && !this.data.leak;
    const made = real ? this.realRow(D, this.tau(block, head)) : this.integerRow(block, head, D);
    const sum = made.lifted.reduce((a, b) => a + b, 0);
    const exponent = Lapis.pow2Exponent(sum, this.data.sqrtHalf);
    const factor = this.data.config.row_scale === "pow2" ? 2 ** -exponent : 1 / sum;
    const W = made.lifted.map((a) => a * factor);
    const mass = W.reduce((a, b) => a + b, 0);
    const log2Z = Math.log2(sum) - made.lift;
    return { D, A: made.A, log2Z, k: exponent - made.lift, W, mass, exponent, integers: made.integers };
  }

  /** W of one query as the run recorded it, where the block gives weights to pairs. */
  recorded(block, head, i) {
    const { N, H } = this;
    if (!this.weighs(block)) return {};
    const at = (this.data.weights.blocks.indexOf(block) * H + head) * N + i;
    const W = Array.from(this.weights.integers.subarray(at * N, (at + 1) * N), (z) => z * this.weights.steps[at]);
    return { W, mass: W.reduce((a, b) => a + b, 0) };
  }

  /** D, A and W of one query, those that there are, averaged over the heads. */
  meanRow(block, i) {
    const rows = Array.from({ length: this.H }, (_, head) => this.row(block, head, i));
    const mean = (name) => rows[0][name].map((_, j) => rows.reduce((sum, row) => sum + row[name][j], 0) / rows.length);
    const names = ["D", "A", "W"].filter((name) => rows[0][name]);
    return Object.fromEntries(names.map((name) => [name, mean(name)]));
  }

  /** ln A = -D / tau, lifted by 2**r so that no row underflows; k is exact. */
  realRow(D, tau) {
    const r = -Math.floor(-Math.min(...D) / tau / Math.LN2);
    const lifted = D.map((d) => Math.exp(-d / tau + r * Math.LN2));
    return { lifted, lift: r, A: D.map((d) => Math.exp(-d / tau)) };
  }

  /** The deployed affinity: some bits, 15 as a rule, read from an integer membrane after D steps of leak. */
  integerRow(block, head, D) {
    const { us, es } = this.membrane(block, head, Math.max(...D) + 1);
    const gain = es[Math.min(...D)];
    const bits = this.data.affinityBits;
    const integers = D.map((d) => Lapis.read(us[d], es[d], gain, bits));
    const A = D.map((d) => us[d] * 2 ** -(32 + es[d]));
    return { lifted: integers, lift: bits + gain, A, integers };
  }

  /** Mantissa and exponent of the membrane at the distances 0..size-1, and perhaps at more. */
  membrane(block, head, size) {
    if (this.stored) {
      const each = this.stored.us.length / (this.data.config.depth * this.H);
      const cut = (list) => list.subarray((block * this.H + head) * each, (block * this.H + head + 1) * each);
      return { us: cut(this.stored.us), es: cut(this.stored.es) };
    }
    const key = `${block} ${head}`;
    let table = this.membranes.get(key);
    if (!table) {
      table = { us: [2 ** 31], es: [-1] };
      this.membranes.set(key, table);
    }
    const B = BigInt(this.data.leak.mantissa[block][head]);
    const b = this.data.leak.exponent[block][head];
    while (table.us.length < size) {
      const product = BigInt(table.us[table.us.length - 1]) * B;
      const large = product >> 63n !== 0n;
      table.us.push(Number(product >> (large ? 32n : 31n)));
      table.es.push(table.es[table.es.length - 1] + b + (large ? 0 : 1));
    }
    return table;
  }

  /** The readout of one token and head, from the row above and the value codes; null where it was not kept. */
  readout(block, head, i, row) {
    const { readout, points } = this.data;
    if (!readout || !points.includes("v") || !points.includes("readout")) return null;
    const fired = this.head(block, "readout", i, head);
    // Recorded weights are rounded, too roughly to compute codes from.
    if (!this.byDistance) return { codes: fired, fired, equal: null };
    const sums = new Float64Array(this.C);
    for (let j = 0; j < this.N; j++) {
      const weight = row.integers ? row.integers[j] : row.W[j];
      this.head(block, "v", j, head).forEach((code, c) => {
        sums[c] += weight * code;
      });
    }
    const scale = readout.scale[block];
    const shift = readout.shift[block];
    const minCode = this.minCode(block, "readout");
    const codes = Array.from(sums, (sum) => {
      let pre = sum * scale + shift;
      if (row.integers) {
        // Every product and sum rounded to float32 on its own, as the deployed network is defined.
        const y = Math.fround(sum) * 2 ** -row.exponent;
        pre = Math.fround(Math.fround(y * Math.fround(scale)) + Math.fround(shift));
      }
      const code = Math.min(this.T, Math.max(this.low("readout"), Math.floor(pre)));
      // A neuron that has not fired by its deadline stays silent.
      return Math.abs(code) < minCode ? 0 : code;
    });
    const equal = codes.filter((code, c) => code === fired[c]).length;
    return { codes, fired, equal, exact: Boolean(row.integers) };
  }

  /** The step at which a code fires, T for silence. */
  latency(code) {
    return this.T - Math.abs(code);
  }
};

/** A = min(floor(u 2**-(32 - bits + e - r) + 1/2), 2**bits - 1). */
Lapis.read = (u, e, gain, bits) => {
  const shift = Math.min(40, Math.max(1, e - gain + 32 - bits));
  return Math.min(2 ** bits - 1, Math.floor((u + 2 ** (shift - 1)) / 2 ** shift));
};

/** round(log2 z), exactly: z = m 2**e, m in [1/2, 1). */
Lapis.pow2Exponent = (z, sqrtHalf) => {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, z);
  const e = ((view.getUint32(0) >>> 20) & 0x7ff) - 1022;
  return e - (z / 2 ** e < sqrtHalf ? 1 : 0);
};

/** By what keys are ranked: the size of their weight, or how near they are where a block gives none. */
Lapis.strength = ({ W, D }) => (W ? W.map(Math.abs) : D.map((d) => -d));

/** A share in per cent: one digit behind the point below ten, two below one. */
Lapis.percent = (share) => `${(100 * share).toFixed(share >= 0.0995 ? 0 : share >= 0.00995 || share === 0 ? 1 : 2)} %`;

Lapis.POINTS = {
  attention_in: "attention input",
  q: "query",
  k: "key",
  v: "value",
  readout: "readout",
  mlp_in: "MLP input",
  mlp_hidden: "MLP hidden",
};

Lapis.NONE = "none of these";

/** The answer to a run in words: the likeliest class, or none where its score is below what the network asks for. */
Lapis.answer = ({ classes, min_score }, shares) => {
  const best = shares.indexOf(Math.max(...shares));
  if (min_score && shares[best] < min_score)
    return { name: Lapis.NONE, says: `Nearest: ${classes[best]}, ${Lapis.percent(shares[best])}` };
  return { name: classes[best], says: "Prediction" };
};

/**
 * How many of the places the shares are spread over, as a share of all: 1 where all are alike. It is the exponential of
 * their entropy, divided by their number.
 */
Lapis.evenness = (values) => {
  const sum = values.reduce((a, b) => a + b, 0);
  const entropy = values.reduce((all, value) => all - (value > 0 ? (value / sum) * Math.log(value / sum) : 0), 0);
  return sum > 0 ? Math.exp(entropy) / values.length : 1;
};
// Above this, a map is as good as uniform.
Lapis.EVEN = 0.97;

/** Shares that sum to one. */
Lapis.softmax = (logits) => {
  const top = Math.max(...logits);
  const lifted = logits.map((x) => Math.exp(x - top));
  const sum = lifted.reduce((a, b) => a + b, 0);
  return lifted.map((x) => x / sum);
};
