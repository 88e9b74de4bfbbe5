// Drawing: small functions that fill an element, at its own width, from numbers alone.
"use strict";

const Charts = {};

// Cividis: blue to yellow, even in lightness, the same to a colour-blind reader.
const CIVIDIS =
  "00224e 002e6a 1a386f 32436d 434e6c 535a6d 61656f 6f7073 7d7c78 8c8878 9b9476 aba072 bcae6c cdbb63 dec958 f0d846 fee838";
Charts.CIVIDIS = CIVIDIS.split(" ").map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));

/** Colour of a share 0..1. */
Charts.colour = (share) => {
  const place = Math.min(1, Math.max(0, share)) * (Charts.CIVIDIS.length - 1);
  const at = Math.min(Charts.CIVIDIS.length - 2, Math.floor(place));
  const mix = Charts.CIVIDIS[at].map((low, c) => low + (Charts.CIVIDIS[at + 1][c] - low) * (place - at));
  return `rgb(${mix.map(Math.round).join(" ")})`;
};

/** The palette from low to high, for a legend. */
Charts.colours = () => [0, 0.25, 0.5, 0.75, 1].map(Charts.colour);

/** Blue for a share above zero, orange below; the nearer to zero, the more of the image is left. */
Charts.twoSided = (share) => ({
  fill: share >= 0 ? "rgb(0 114 178)" : "rgb(213 94 0)",
  opacity: Math.round(Math.min(1, Math.abs(share)) ** 0.7 * 88) / 100,
});

/** Black or white, whichever reads better on a colour. */
Charts.inkOn = (colour) => {
  const parts = colour.match(/\d+/g).map((c) => Number(c) / 255);
  const linear = parts.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  const light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return (light + 0.05) / 0.05 > 1.05 / (light + 0.05) ? "#000" : "#fff";
};

Charts.number = (x, digits = 3) => {
  if (!Number.isFinite(x)) return "∞";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e5)
    return `${(x / 10 ** Math.floor(Math.log10(size))).toFixed(1)}·10${Charts.power(Math.floor(Math.log10(size)))}`;
  if (size >= 1e-3) return String(Number(x.toPrecision(digits)));
  const exponent = Math.floor(Math.log10(size));
  return `${(x / 10 ** exponent).toFixed(1)}·10${Charts.power(exponent)}`;
};

/** A number with its sign, as in +1.2 and −0.3. */
Charts.signed = (x) =>
  `${x < 0 ? "−" : "+"}${Math.abs(x) < 0.005 ? "0" : Charts.number(Math.abs(x), Math.abs(x) < 1 ? 2 : 3)}`;

/** A ratio of energies, dense to ours, in words. */
Charts.times = (ratio) => (ratio >= 1 ? `${ratio.toFixed(1)} × less` : `${(1 / ratio).toFixed(1)} × more`);

/** An integer as superscript digits. */
Charts.power = (n) => String(n).replace(/./g, (c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] ?? "⁻");

Charts.make = (tag, attributes, parent, text) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
};

/** An empty drawing that fills `host`; `label` is what a screen reader says. */
Charts.canvas = (host, height, label) => {
  const width = Math.max(240, host.clientWidth);
  host.setAttribute("aria-label", label);
  host.replaceChildren();
  const svg = Charts.make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, host);
  return { svg, width, height };
};

/** Colours over the patches of an image, made grey so that only the map has colour; `paint` gives those of patch n. */
Charts.map = (host, { image, grid, label }, paint) => {
  host.setAttribute("aria-label", label);
  host.replaceChildren();
  const size = 10 * grid;
  const svg = Charts.make("svg", { viewBox: `0 0 ${size} ${size}`, width: "100%", "aria-hidden": "true" }, host);
  Charts.make("image", { href: image, width: size, height: size, style: "filter:grayscale(1)" }, svg);
  for (let n = 0; n < grid * grid; n++) {
    const { fill, opacity, title } = paint(n);
    const place = { x: 10 * (n % grid), y: 10 * Math.floor(n / grid), width: 10, height: 10 };
    Charts.make("title", {}, Charts.make("rect", { ...place, fill, "fill-opacity": opacity }, svg), title);
  }
  return svg;
};

/** A legend: two ends in words, and the colours between them. */
Charts.ramp = (host, colours, low, high) =>
  host.replaceChildren(
    element("span", {}, low),
    element("span", { className: "ramp", style: `background:linear-gradient(90deg, ${colours.join(", ")})` }),
    element("span", {}, high),
  );

/** A drawing as a file of its own: what the style sheet gave it is written into it. */
Charts.standalone = (svg, size = 480) => {
  const kept = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight"];
  const copy = svg.cloneNode(true);
  const [from, to] = [svg, copy].map((root) => [...root.querySelectorAll("text, line, path, circle, rect")]);
  from.forEach((node, n) => {
    const style = getComputedStyle(node);
    for (const name of [...kept, "text-anchor"]) to[n].setAttribute(name, style.getPropertyValue(name));
    to[n].removeAttribute("class");
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("font-family", "system-ui, sans-serif");
  if (copy.getAttribute("width") === "100%") copy.setAttribute("width", size);
  return new XMLSerializer().serializeToString(copy);
};

/** Several maps in one drawing, side by side, each with its name above it. */
Charts.beside = (maps, names) => {
  const host = element("div");
  const size = 220;
  const svg = Charts.make("svg", { width: maps.length * (size + 10), height: size + 24 }, host);
  maps.forEach((map, n) => {
    Charts.make("text", { x: n * (size + 10), y: 15, "font-size": 14 }, svg, names[n]);
    const place = { x: n * (size + 10), y: 24, width: size, height: size };
    const copy = map.cloneNode(true);
    for (const [name, value] of Object.entries(place)) copy.setAttribute(name, value);
    svg.append(copy);
  });
  svg.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  svg.setAttribute("font-family", "system-ui, sans-serif");
  return new XMLSerializer().serializeToString(svg);
};

/** Round steps that cover `span` in about `count` pieces. */
Charts.ticks = (from, to, count) => {
  const raw = (to - from) / count || 1;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= raw * 0.999);
  const found = [];
  for (let x = Math.ceil(from / step) * step; x <= to + step * 1e-9; x += step) found.push(Math.round(x / step) * step);
  return found;
};

const LEFT = 46;
const RIGHT = 14;

/**
 * First spikes of a query and a key, one column per channel, their difference as the bar between them; below, the running
 * sum of the differences. `places` are latencies T - z; a signed code's OFF spikes lie beyond T.
 */
Charts.latencies = (host, { query, key, delay, T, signed, order, label }) => {
  const top = 132;
  const bottom = 76;
  const { svg, width, height } = Charts.canvas(host, top + bottom + 52, label);
  const levels = signed ? 2 * T : T;
  const x = (c) => LEFT + ((c + 0.5) / query.length) * (width - LEFT - RIGHT);
  const y = (t) => 10 + (t / levels) * (top - 16);
  const size = Math.min(7, Math.max(2.6, ((width - LEFT - RIGHT) / query.length) * 0.72));
  const marks = signed ? { "ON 0": 0, silent: T, "OFF 0": 2 * T } : { 0: 0, silent: T };
  for (const [name, t] of Object.entries(marks)) {
    Charts.make("line", { x1: LEFT, x2: width - RIGHT, y1: y(t), y2: y(t), class: "rule" }, svg);
    Charts.make("text", { x: LEFT - 6, y: y(t) + 4, class: "tick end" }, svg, name);
  }
  Charts.make("text", { x: LEFT - 6, y: y(levels / (signed ? 4 : 2)) + 4, class: "tick end" }, svg, "step");
  let sum = 0;
  const totals = query.map((t, c) => (sum += Math.abs(t - key[c])));
  const all = Math.max(1, sum + delay);
  query.forEach((t, c) => {
    Charts.make(
      "line",
      { x1: x(c), x2: x(c), y1: y(t), y2: y(key[c]), class: "gap", "stroke-width": size * 0.55 },
      svg,
    );
  });
  query.forEach((t, c) => {
    Charts.make("circle", { cx: x(c), cy: y(key[c]), r: size * 0.62, class: "key-dot" }, svg);
    Charts.make("rect", { x: x(c) - size / 2, y: y(t) - size / 2, width: size, height: size, class: "query-dot" }, svg);
  });
  const base = height - 24;
  const rise = (value) => base - (value / all) * (bottom - 8);
  const steps = totals.map((value, c) => `H${x(c)}V${rise(value)}`);
  const path = `M${LEFT} ${base}${steps.join("")}H${width - RIGHT}`;
  Charts.make("path", { d: `${path}V${base}H${LEFT}Z`, class: "sum-area" }, svg);
  Charts.make("path", { d: path, class: "sum-line" }, svg);
  Charts.make("line", { x1: LEFT, x2: width - RIGHT, y1: base, y2: base, class: "axis" }, svg);
  Charts.make("text", { x: LEFT - 6, y: rise(sum) + 4, class: "tick end strong" }, svg, String(sum));
  Charts.make("text", { x: LEFT - 6, y: base + 4, class: "tick end" }, svg, "0");
  Charts.make("text", { x: LEFT, y: height - 6, class: "tick" }, svg, order);
  Charts.make("text", { x: width - RIGHT, y: rise(sum) - 6, class: "tick end halo" }, svg, `sum of differences ${sum}`);
};

/** u_r = beta**r from 1 down to every key's distance; the chosen key's affinity is marked. */
Charts.membrane = (host, { D, tau, chosen, log, k, label }) => {
  const { svg, width, height } = Charts.canvas(host, host.clientWidth > 420 ? 380 : 236, label);
  const floor = height - 46;
  const far = Math.max(...D, 1) * 1.04;
  const halvings = far / tau / Math.LN2;
  const value = (r) => Math.exp(-r / tau);
  const x = (r) => LEFT + (r / far) * (width - LEFT - RIGHT);
  const y = log
    ? (r) => 14 + (r / tau / Math.LN2 / halvings) * (floor - 14)
    : (r) => 14 + (1 - value(r)) * (floor - 14);
  const levels = log
    ? Charts.ticks(0, halvings, 4).map((h) => [h * tau * Math.LN2, h ? `2${Charts.power(-h)}` : "1"])
    : [0, 0.5, 1].map((u) => [u ? -tau * Math.log(u) : Infinity, String(u)]);
  for (const [r, name] of levels) {
    Charts.make("line", { x1: LEFT, x2: width - RIGHT, y1: y(r), y2: y(r), class: "rule" }, svg);
    Charts.make("text", { x: LEFT - 6, y: y(r) + 4, class: "tick end" }, svg, name);
  }
  for (const r of Charts.ticks(0, far, width < 420 ? 4 : 7)) {
    Charts.make("text", { x: x(r), y: height - 24, class: "tick middle" }, svg, String(r));
  }
  Charts.make("text", { x: width - RIGHT, y: height - 6, class: "tick end" }, svg, "leak steps r");
  const curve = (to) => {
    const points = Array.from({ length: 161 }, (_, n) => (n / 160) * to);
    return points.map((r, n) => `${n ? "L" : "M"}${x(r).toFixed(2)} ${y(r).toFixed(2)}`).join("");
  };
  Charts.make("path", { d: curve(far), class: "leak faint" }, svg);
  Charts.make("path", { d: curve(chosen), class: "leak" }, svg);
  for (const d of D) Charts.make("line", { x1: x(d), x2: x(d), y1: floor + 1, y2: floor + 7, class: "rug" }, svg);
  if (log && k !== null && -k < halvings && k <= 0) {
    const at = y(-k * tau * Math.LN2);
    Charts.make("line", { x1: LEFT, x2: width - RIGHT, y1: at, y2: at, class: "shift" }, svg);
    Charts.make(
      "text",
      { x: width - RIGHT, y: at - 5, class: "tick end shift-name halo" },
      svg,
      `row shift 2${Charts.power(k)}`,
    );
  }
  Charts.make("line", { x1: x(chosen), x2: x(chosen), y1: y(chosen), y2: floor + 7, class: "drop" }, svg);
  Charts.make("line", { x1: LEFT, x2: x(chosen), y1: y(chosen), y2: y(chosen), class: "drop" }, svg);
  Charts.make("circle", { cx: x(chosen), cy: y(chosen), r: 5, class: "key-dot solid" }, svg);
  // Left of the point the curve lies above it, so a label there goes below, or above where the axis is too near.
  const after = x(chosen) - 160 < 0;
  const below = log && !after && y(chosen) + 24 < floor;
  const spot = { x: x(chosen) + (after ? 12 : -12), y: y(chosen) + (below ? 19 : -10) };
  Charts.make(
    "text",
    { ...spot, class: `tick strong halo ${after ? "" : "end"}` },
    svg,
    `D = ${chosen},  A = ${Charts.number(value(chosen))}`,
  );
};

/** Weights as bars, the largest first; the chosen one is marked. */
Charts.weights = (host, { W, chosen, label }) => {
  const { svg, width, height } = Charts.canvas(host, 176, label);
  const [low, high] = [Math.min(0, ...W), Math.max(0, ...W)];
  const y = (w) => 24 + ((high - w) / (high - low || 1)) * (height - 56);
  const each = (width - LEFT - RIGHT) / W.length;
  const x = (n) => LEFT + n * each;
  // An end too near to zero for a line of text has no name.
  for (const w of [0, ...[high, low].filter((end) => Math.abs(y(end) - y(0)) > 13)]) {
    Charts.make("line", { x1: LEFT, x2: width - RIGHT, y1: y(w), y2: y(w), class: w ? "rule" : "axis" }, svg);
    Charts.make("text", { x: LEFT - 6, y: y(w) + 4, class: "tick end" }, svg, Charts.number(w, 2));
  }
  W.forEach((w, n) => {
    const place = { x: x(n) + each * 0.1, y: Math.min(y(w), y(0)), width: each * 0.8, height: Math.abs(y(w) - y(0)) };
    Charts.make("rect", { ...place, class: `bar ${w < 0 ? "minus" : ""} ${n === chosen ? "" : "other"}` }, svg);
  });
  const middle = x(chosen) + each / 2;
  Charts.make("circle", { cx: middle, cy: y(W[chosen]), r: 5, class: "key-dot solid" }, svg);
  const late = middle > width * 0.6;
  const spot = { x: middle + (late ? -10 : 10), y: Math.max(14, Math.min(y(W[chosen]), y(0)) - 8) };
  Charts.make(
    "text",
    { ...spot, class: `tick strong halo ${late ? "end" : ""}` },
    svg,
    `W = ${Charts.number(W[chosen])}`,
  );
  Charts.make("text", { x: LEFT, y: height - 6, class: "tick" }, svg, `all ${W.length} keys, the largest weight first`);
};

/** The codes that a token reads out, as bars, and a mark where the network fired the same. */
Charts.readout = (host, { codes, fired, low, T, label }) => {
  const { svg, width, height } = Charts.canvas(host, 118, label);
  const span = T - low;
  const zero = 10 + (T / span) * (height - 34);
  const each = (width - LEFT - RIGHT) / codes.length;
  const y = (z) => zero - (z / span) * (height - 34);
  for (const z of low < 0 ? [T, 0, low] : [T, 0]) {
    Charts.make("line", { x1: LEFT, x2: width - RIGHT, y1: y(z), y2: y(z), class: "rule" }, svg);
    Charts.make("text", { x: LEFT - 6, y: y(z) + 4, class: "tick end" }, svg, String(z));
  }
  codes.forEach((z, c) => {
    const at = { x: LEFT + c * each + each * 0.15, width: each * 0.7 };
    Charts.make(
      "rect",
      { ...at, y: Math.min(y(z), zero), height: Math.abs(y(z) - zero), class: z === fired[c] ? "code" : "code off" },
      svg,
    );
  });
  Charts.make("text", { x: LEFT, y: height - 5, class: "tick" }, svg, `code of each channel, 0 to ${codes.length - 1}`);
};

// The raster has a wider margin than other charts, for the name of its axis.
const AXIS = 70;

/** Spikes per step, as bars over the raster. */
Charts.histogram = (host, { counts, step, label }) => {
  const { svg, width, height } = Charts.canvas(host, 84, label);
  const top = Math.max(1, ...counts);
  const each = (width - AXIS - RIGHT) / counts.length;
  const floor = height - 6;
  Charts.make("text", { x: AXIS - 6, y: 16, class: "tick end" }, svg, top.toLocaleString("en"));
  Charts.make("text", { x: AXIS - 6, y: floor, class: "tick end" }, svg, "0");
  Charts.sideways(svg, 10, height / 2, "spikes");
  counts.forEach((count, n) => {
    const tall = (count / top) * (floor - 6);
    const place = { x: AXIS + n * each + 1, y: floor - tall, width: Math.max(1, each - 2), height: tall };
    Charts.make("rect", { ...place, class: n < step ? "bar" : "bar later" }, svg);
  });
};

/** The name of a vertical axis, read from below. */
Charts.sideways = (svg, x, y, text) =>
  Charts.make("text", { x, y, class: "tick middle", transform: `rotate(-90 ${x} ${y})` }, svg, text);

/**
 * One mark per spike: steps to the right, neurons downward in the order of `codes`. Where there are more neurons than
 * lines, a line stands for several and its colour is the stronger, the more of them fire.
 */
Charts.raster = (host, { codes, T, step, deadline, neurons, colours, label }) => {
  const each = Math.ceil(codes.length / 400);
  const lines = Math.ceil(codes.length / each);
  const tall = Math.min(320, Math.max(220, lines * 1.6));
  const { svg, width, height } = Charts.canvas(host, tall + 46, label);
  const wide = width - AXIS - RIGHT;
  const image = element("canvas", { width: T, height: lines });
  const pen = image.getContext("2d");
  codes.forEach((code, n) => {
    const fires = T - Math.abs(code);
    if (code === 0 || fires >= step) return;
    pen.fillStyle = code > 0 ? colours.on : colours.off;
    pen.globalAlpha = each === 1 ? 1 : Math.max(0.12, 1 / each);
    pen.fillRect(fires, Math.floor(n / each), 1, 1);
  });
  const marks = { href: image.toDataURL(), x: AXIS, y: 0, width: wide, height: tall, preserveAspectRatio: "none" };
  Charts.make("image", { ...marks, style: "image-rendering:pixelated" }, svg);
  const every = wide / T < 18 ? 2 : 1;
  for (let n = 0; n <= T; n++) {
    const x = AXIS + (n / T) * wide;
    Charts.make("line", { x1: x, x2: x, y1: 0, y2: tall, class: n < T ? "rule" : "axis" }, svg);
    if (n < T && n % every === 0)
      Charts.make("text", { x: x + wide / T / 2, y: tall + 16, class: "tick middle" }, svg, String(n));
  }
  Charts.make("line", { x1: AXIS, x2: width - RIGHT, y1: tall, y2: tall, class: "axis" }, svg);
  if (deadline < T - 1) {
    const x = AXIS + ((deadline + 1) / T) * wide;
    Charts.make("rect", { x, y: 0, width: AXIS + wide - x, height: tall, class: "closed" }, svg);
    Charts.make("line", { x1: x, x2: x, y1: 0, y2: tall, class: "deadline" }, svg);
    Charts.make("text", { x: x - 4, y: 14, class: "tick strong end" }, svg, "deadline");
  }
  Charts.make("text", { x: AXIS + wide / 2, y: height - 8, class: "tick middle" }, svg, "step of the window");
  Charts.sideways(svg, 10, tall / 2, neurons);
  const last = codes.length - 1;
  for (const n of [...Charts.ticks(0, last, 4).filter((tick) => tick < last * 0.93), last])
    Charts.make(
      "text",
      { x: AXIS - 6, y: Math.max(11, ((n + 0.5) / codes.length) * tall + 4), class: "tick end" },
      svg,
      n.toLocaleString("en"),
    );
  return each;
};

/** What the colours of the energy chart mean, and a sentence. */
Charts.energyKey = (host, says) =>
  host.replaceChildren(
    element("span", { className: "mark ours" }),
    "Lapis ",
    element("span", { className: "mark quantized" }),
    "the same network, plain quantized ",
    element("span", { className: "mark dense" }),
    "dense. ",
    `${says}. At the right: what plain quantized takes over what Lapis takes.`,
  );

/** The rows of an estimate and of the whole model, for the chart. */
Charts.energyRows = (made) => [
  ...made.rows.map((row) => ({
    name: row.operator,
    ours: row.ours.mj,
    quantized: row.quantized.mj,
    dense: row.dense.mj,
  })),
  {
    name: "whole model",
    ours: made.energy_mj,
    quantized: made.quantized_mj,
    dense: made.dense_energy_mj,
    total: true,
  },
];

/** What an estimate says in a sentence, the closest rival first. */
Charts.energySays = (made) =>
  `${Charts.number(made.energy_mj)} mJ and ${made.latency_steps} time steps per image; the same network as a plain ` +
  `quantized one takes ${Charts.number(made.quantized_mj)} mJ, ${Charts.number(made.skipping_mj)} mJ if it skips ` +
  `zeros, the dense one ${Charts.number(made.dense_energy_mj)} mJ`;

/** The tile of a report: how much energy against the closest rival, then against the others. */
Charts.energyTile = ({ energy, int8_ratio }) => {
  const times = (ratio) => (ratio ? Charts.times(ratio) : "–");
  return [
    times(energy.quantized_ratio),
    `energy than the same network plain quantized, estimated; if that skips zeros ${times(energy.skipping_ratio)}; ` +
      `${times(int8_ratio)} than dense int8, ${times(energy.ratio)} than dense FP32; ${energy.latency_steps} time steps`,
  ];
};

/** Three marks per operator on a logarithmic axis: dense, plain quantized and ours, joined. */
Charts.energy = (host, { rows, label }) => {
  const line = 30;
  const { svg, width, height } = Charts.canvas(host, rows.length * line + 46, label);
  const left = width < 480 ? 116 : 130;
  const right = width < 480 ? 62 : 74;
  const seen = rows.flatMap((row) => [row.ours, row.quantized, row.dense]).filter((v) => v > 0);
  const low = Math.floor(Math.log10(Math.min(...seen)));
  const high = Math.ceil(Math.log10(Math.max(...seen)));
  const x = (v) => left + ((Math.log10(v) - low) / (high - low || 1)) * (width - left - right);
  for (let p = low; p <= high; p++) {
    Charts.make("line", { x1: x(10 ** p), x2: x(10 ** p), y1: 4, y2: height - 42, class: "rule" }, svg);
    if (width < 480 && (high - p) % 2) continue;
    Charts.make(
      "text",
      { x: x(10 ** p), y: height - 26, class: "tick middle" },
      svg,
      p < -2 || p > 3 ? `10${Charts.power(p)}` : String(10 ** p),
    );
  }
  Charts.make("text", { x: width - right, y: height - 6, class: "tick end" }, svg, "mJ per image, logarithmic");
  rows.forEach((row, n) => {
    const y = n * line + line / 2 + 4;
    Charts.make("text", { x: left - 10, y: y + 4, class: `tick end ${row.total ? "strong" : ""}` }, svg, row.name);
    if (row.ours > 0 && row.dense > 0)
      Charts.make("line", { x1: x(row.ours), x2: x(row.dense), y1: y, y2: y, class: "saving" }, svg);
    if (row.dense > 0) Charts.make("circle", { cx: x(row.dense), cy: y, r: 5.5, class: "dense-dot" }, svg);
    if (row.quantized > 0) Charts.make("circle", { cx: x(row.quantized), cy: y, r: 5.5, class: "quantized-dot" }, svg);
    if (row.ours > 0)
      Charts.make("rect", { x: x(row.ours) - 5.5, y: y - 5.5, width: 11, height: 11, class: "ours-dot" }, svg);
    const says = row.ours > 0 ? (row.quantized > 0 ? `${Charts.number(row.quantized / row.ours, 2)}×` : "") : "free";
    Charts.make("text", { x: width - 4, y: y + 4, class: `tick end ${row.total ? "strong" : ""}` }, svg, says);
  });
};

/** The energy of a report: what it is measured on in a sentence, the chart, and its key. */
Charts.energyReport = ({ energy, activities, measured }, images) => {
  const says = Charts.energySays(energy);
  const shares = Object.entries(activities).map(
    ([point, share]) => `${point.replaceAll("_", " ")} ${Math.round(100 * share)}\u00a0%`,
  );
  byId("energy-head").textContent =
    `Estimated: ${says}. Values that spike, measured over ${measured} ${images}: ${shares.join(", ")}.`;
  Charts.energy(byId("energy"), { rows: Charts.energyRows(energy), label: says });
  Charts.energyKey(byId("energy-says"), `Convention ${energy.convention}: ${energy.counted}; ${energy.node}`);
};
