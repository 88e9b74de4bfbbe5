// Spikes through the window: a raster of the chosen neurons, and a count per step above it.
"use strict";

const STEP_MILLISECONDS = 260;

Lapis.Raster = class {
  constructor(page) {
    this.page = page;
    this.playing = null;
    this.step = this.run.T;
    const { data, T } = this.run;
    const option = (value, text) => element("option", { value, textContent: text });
    byId("raster-block").replaceChildren(option("", "of the map"), ...data.blocks.map((b) => option(b, String(b))));
    byId("raster-point").replaceChildren(...data.points.map((p) => option(p, Lapis.POINTS[p])));
    byId("step").max = T;
    byId("step").value = T;
    const follow = (id, changes) => byId(id).addEventListener("input", () => page.set(changes(byId(id).value)));
    follow("raster-block", (value) => ({ rasterBlock: value === "" ? null : Number(value) }));
    follow("raster-point", (point) => ({ point }));
    follow("raster-scope", (scope) => ({ scope }));
    byId("raster-sort").addEventListener("input", () => this.draw());
    byId("step").addEventListener("input", () => {
      this.stop();
      this.step = Number(byId("step").value);
      this.draw();
    });
    byId("play").addEventListener("click", () => (this.playing ? this.stop() : this.play()));
    byId("raster-svg").addEventListener("click", () => this.saveSvg());
    byId("raster-csv").addEventListener("click", () => this.saveCsv());
  }

  get run() {
    return this.page.run;
  }

  play() {
    this.step = 0;
    byId("play").textContent = "❚❚";
    this.playing = setInterval(() => {
      this.step += 1;
      byId("step").value = this.step;
      if (this.step >= this.run.T) this.stop();
      this.draw();
    }, STEP_MILLISECONDS);
    this.draw();
  }

  stop() {
    clearInterval(this.playing);
    this.playing = null;
    byId("play").textContent = "▶";
  }

  /** The neurons shown: token, channel and code of each. */
  neurons() {
    const { run } = this;
    const { point, scope, query, rasterBlock, block } = this.page.state;
    const tokens = scope === "token" ? [query] : Array.from({ length: run.N }, (_, n) => n);
    const from = rasterBlock ?? block;
    return {
      block: from,
      list: tokens.flatMap((token) => Array.from(run.token(from, point, token), (code, c) => ({ token, c, code }))),
    };
  }

  draw() {
    const { run, step } = this;
    const { point, scope, query, rasterBlock } = this.page.state;
    byId("raster-block").value = rasterBlock ?? "";
    byId("raster-point").value = point;
    byId("raster-scope").value = scope;
    const { block, list } = this.neurons();
    const codes = list.map((neuron) => neuron.code);
    const counts = new Array(run.T).fill(0);
    for (const code of codes) if (code) counts[run.latency(code)] += 1;
    const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
    const [fired, soFar] = [sum(counts), sum(counts.slice(0, step))];
    const whole = (n) => n.toLocaleString("en");
    const whose = scope === "token" ? run.name(query) : `all ${run.N} tokens`;
    const sorted = byId("raster-sort").checked;
    if (sorted) codes.sort((a, b) => Math.abs(b) - Math.abs(a) || b - a);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    Charts.histogram(byId("histogram"), { counts, step, label: `Spikes per step: ${counts.join(", ")}.` });
    const says =
      `Block ${block}, ${Lapis.POINTS[point]}, ${whose}: ${whole(fired)} of ${whole(codes.length)} values spike (${Lapis.percent(fired / codes.length)}), ` +
      `${whole(codes.length - fired)} stay silent${step < run.T ? `; ${whole(soFar)} spiked before step ${step}` : ""}.`;
    const minCode = run.minCode(block, point);
    const order = scope === "token" ? "channel" : "value, token by token";
    const each = Charts.raster(byId("raster"), {
      codes,
      T: run.T,
      step,
      deadline: run.T - minCode,
      neurons: sorted ? "values, earliest first" : order,
      colours: { on: colour("--key"), off: colour("--query") },
      label: says,
    });
    byId("raster-says").textContent =
      says +
      (minCode > 1 ? ` The deadline is step ${run.T - minCode}: a code below ${minCode} stays silent.` : "") +
      (run.low(point) < 0 ? " ON spikes are blue, OFF spikes orange." : "") +
      (each > 1 ? ` Each line stands for ${each} values; the stronger its colour, the more of them spike.` : "");
  }

  fileName() {
    const { point, scope, query } = this.page.state;
    const whose = scope === "token" ? this.run.name(query).replaceAll(/[, ]+/g, "-") : "all-tokens";
    return `spikes-block${this.neurons().block}-${point}-${whose}`;
  }

  saveSvg() {
    Dom.download(`${this.fileName()}.svg`, "image/svg+xml", Charts.standalone(byId("raster").firstElementChild));
  }

  saveCsv() {
    const lines = this.neurons().list.map(({ token, c, code }) => [
      this.run.name(token),
      c,
      code,
      code ? this.run.latency(code) : "",
    ]);
    Dom.download(`${this.fileName()}.csv`, "text/csv", Dom.csv([["token", "channel", "code", "step"], ...lines]));
  }
};
