// What a run of the live page has in figures: who fired, what it cost, where it looked, what decided. Nothing is drawn here.
"use strict";

const Measures = {};

/** How many codes of a part of the run are not zero. */
Measures.spikes = (codes, from, to) => {
  let count = 0;
  for (let n = from; n < to; n++) if (codes[n]) count += 1;
  return count;
};

/** How many values spike at each point of each block. */
Measures.fired = (run) => {
  const of = (block, point) => {
    const start = run.starts.get(`${block} ${point}`);
    return Measures.spikes(run.codes, start, start + run.data.neurons[point]);
  };
  return Object.fromEntries(run.data.points.map((point) => [point, run.data.blocks.map((block) => of(block, point))]));
};

/** The share of values that spike at each point, over all blocks. */
Measures.activities = ({ neurons }, fired) =>
  Object.fromEntries(
    Object.entries(fired).map(([point, counts]) => [
      point,
      counts.reduce((a, b) => a + b, 0) / (counts.length * neurons[point]),
    ]),
  );

/** A rule of energy_rule.py at some activities: the energy row by row. */
Measures.energy = (rule, activities) => {
  const at = (quantity) =>
    Object.entries(quantity).reduce(
      (sum, [point, slope]) => sum + slope * (point === "silent" ? 1 : activities[point]),
      0,
    );
  const rows = rule.rows.map((row) => ({
    ...row,
    ours: { mj: at(row.ours.mj), count: at(row.ours.count), kinds: row.ours.kinds },
  }));
  const energy_mj = rows.reduce((sum, row) => sum + row.ours.mj, 0);
  const skipping_mj = at(rule.skipping_mj);
  const times = (rival) => (energy_mj ? rival / energy_mj : null);
  return {
    ...rule,
    rows,
    energy_mj,
    skipping_mj,
    quantized_ratio: times(rule.quantized_mj),
    skipping_ratio: times(skipping_mj),
    ratio: times(rule.dense_energy_mj),
  };
};

/**
 * r = e prod (I + A) / 2 from the last block to the first; A is the mean of the heads' rows, each scaled to sum to one.
 * `pause` is awaited before every block; when it gives false, the rest is left and the result is null.
 */
Measures.rollout = async (run, pause) => {
  const { N, H, data } = run;
  let share = new Float64Array(N);
  if (data.decides === "patches") share.fill(1 / (N - 1), 1);
  else share[0] = 1;
  const [D, A] = [new Int32Array(N), new Float64Array(N)];
  for (const block of [...data.blocks].reverse()) {
    if (!(await pause())) return null;
    const moved = new Float64Array(N);
    for (let head = 0; head < H; head++) {
      const affinity = Measures.affinity(run, block, head);
      for (let i = 0; i < N; i++) {
        if (!share[i]) continue;
        run.distances(block, head, i, D);
        let [nearest, farthest] = [D[0], D[0]];
        for (let j = 1; j < N; j++) {
          if (D[j] < nearest) nearest = D[j];
          if (D[j] > farthest) farthest = D[j];
        }
        const read = affinity(nearest, farthest);
        let sum = 0;
        for (let j = 0; j < N; j++) sum += A[j] = read(D[j]);
        const scale = share[i] / H / sum;
        for (let j = 0; j < N; j++) moved[j] += scale * A[j];
      }
    }
    share = share.map((value, n) => (value + moved[n]) / 2);
  }
  return Array.from(share);
};

/** For the row of a nearest and a farthest key: the deployed affinity at a distance, computed once for each exponent. */
Measures.affinity = (run, block, head) => {
  const tables = new Map();
  return (nearest, farthest) => {
    const { us, es } = run.membrane(block, head, farthest + 1);
    const gain = es[nearest];
    if (!tables.has(gain)) tables.set(gain, []);
    const table = tables.get(gain);
    return (d) => (table[d] ??= Lapis.read(us[d], es[d], gain, run.data.affinityBits));
  };
};

/** Logits less their mean, as evidence.py has scores. */
Measures.scores = (logits) => {
  const mean = logits.reduce((a, b) => a + b, 0) / logits.length;
  return logits.map((logit) => logit - mean);
};

/** Pixels with one tile painted in the mean colour of the picture. */
Measures.hide = (pixels, size, { row, column, step }, colour) => {
  const hidden = pixels.slice();
  for (let y = row * step; y < Math.min(size, (row + 1) * step); y++)
    for (let x = column * step; x < Math.min(size, (column + 1) * step); x++) hidden.set(colour, (y * size + x) * 3);
  return hidden;
};

/** To the nearest integer; halves to the even one. */
Measures.round = (x) => (x - Math.floor(x) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x));

Measures.meanColour = (pixels) => {
  const sums = [0, 0, 0];
  for (let n = 0; n < pixels.length; n++) sums[n % 3] += pixels[n];
  return sums.map((sum) => Measures.round(sum / (pixels.length / 3)));
};

/**
 * Evidence by occlusion, one run per tile. `pause` is awaited now and then, with the number of tiles done and of all;
 * when it gives false, the rest is left and the result is null.
 */
Measures.evidence = async (engine, data, pixels, logits, pause) => {
  const { side, classes, says } = data.occlusion;
  const { image_size: size, patch_size: patch } = data.config;
  const tiles = Math.ceil(data.grid / side);
  const colour = Measures.meanColour(pixels);
  const scores = Measures.scores(logits);
  const top = logits
    .map((_, n) => n)
    .sort((a, b) => logits[b] - logits[a] || a - b)
    .slice(0, classes);
  const values = top.map(() => Array.from({ length: tiles }, () => new Array(tiles)));
  for (let n = 0; n < tiles * tiles; n++) {
    if (!(await pause(n, tiles * tiles))) return null;
    const [row, column] = [Math.floor(n / tiles), n % tiles];
    const hidden = Measures.hide(pixels, size, { row, column, step: side * patch }, colour);
    const left = Measures.scores(engine.run(hidden).logits);
    top.forEach((index, rank) => {
      values[rank][row][column] = scores[index] - left[index];
    });
  }
  const made = top.map((index, rank) => ({ index, score: scores[index], values: values[rank] }));
  return { says, side, classes: made };
};
