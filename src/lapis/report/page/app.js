// The page: what is chosen, and what that shows.
"use strict";

const POINT_NAMES = {
  attention_in: "attention input",
  q: "query",
  k: "key",
  v: "value",
  readout: "readout",
  mlp_in: "MLP input",
  mlp_hidden: "MLP hidden",
};

const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;

function describe(host, facts) {
  host.replaceChildren(
    ...facts.map(([name, value, title]) =>
      element("div", { title: title ?? "" }, element("dt", {}, name), element("dd", {}, value)),
    ),
  );
}

class Page {
  constructor(run) {
    const { data } = run;
    this.run = run;
    const middle = 1 + Math.floor(run.grid / 2) * run.grid + Math.floor(run.grid / 2);
    this.state = {
      block: data.blocks[Math.floor(data.blocks.length / 2)],
      head: 0,
      query: Math.min(middle, run.N - 1),
      key: null,
      hover: null,
      pick: "query",
      show: "weight",
      axis: "log",
      point: "q",
      rasterBlock: null,
      scope: "token",
      step: run.T,
      convention: 0,
    };
    this.playing = null;
  }

  start() {
    this.fillHero();
    this.buildPatches();
    this.buildAtlas();
    this.buildRaster();
    this.buildActivity();
    this.buildEnergy();
    this.listen();
    byId("page").hidden = false;
    byId("trouble").remove();
    this.drawAll();
    let width = document.body.clientWidth;
    new ResizeObserver(() => {
      if (document.body.clientWidth === width) return;
      width = document.body.clientWidth;
      this.drawAll();
    }).observe(document.body);
  }

  set(changes) {
    Object.assign(this.state, changes);
    this.drawAttention();
    if ("query" in changes || "block" in changes) this.drawRaster();
  }

  drawAll() {
    this.drawAttention();
    this.drawRaster();
    this.drawEnergy();
  }

  // Choosing

  get row() {
    const { block, head, query } = this.state;
    const name = `${block} ${head} ${query}`;
    if (this.rowName !== name) {
      this.rowName = name;
      this.rowMade = this.run.row(block, head, query);
    }
    return this.rowMade;
  }

  /** Keys from the strongest to the weakest. */
  ranked() {
    const { W } = this.row;
    return W.map((_, j) => j).sort((a, b) => W[b] - W[a] || a - b);
  }

  /** The key shown: the one under the pointer, the one chosen, or the strongest other patch. */
  get key() {
    const { hover, key, query } = this.state;
    return hover ?? key ?? this.ranked().find((j) => j !== query) ?? 0;
  }

  /** The token one step from `token` in a direction; the class token lies before the first patch. */
  neighbour(token, arrow) {
    const { grid } = this.run;
    if (token === 0) return arrow === "ArrowDown" || arrow === "ArrowRight" ? 1 : 0;
    const row = Math.floor((token - 1) / grid);
    const column = (token - 1) % grid;
    if (arrow === "ArrowLeft") return column > 0 ? token - 1 : token;
    if (arrow === "ArrowRight") return column < grid - 1 ? token + 1 : token;
    if (arrow === "ArrowUp") return row > 0 ? token - grid : 0;
    return row < grid - 1 ? token + grid : token;
  }

  name(token) {
    const { grid } = this.run;
    return token === 0 ? "class token" : `patch ${Math.floor((token - 1) / grid) + 1}, ${((token - 1) % grid) + 1}`;
  }

  move(list, now, by) {
    const at = list.indexOf(now) + by;
    return list[Math.min(list.length - 1, Math.max(0, at))];
  }

  listen() {
    byId("theme").addEventListener("click", () => {
      const dark = getComputedStyle(document.documentElement).getPropertyValue("--dark").trim() === "1";
      document.documentElement.dataset.theme = dark ? "light" : "dark";
      this.drawAll();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.drawAll());
    for (const kind of ["pick", "show", "axis"]) {
      const buttons = document.querySelectorAll(`[data-${kind}]`);
      for (const button of buttons) {
        button.addEventListener("click", () => {
          for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
          this.set({ [kind]: button.dataset[kind] });
        });
      }
    }
    byId("class-token").addEventListener("click", (event) => this.choose(0, event.shiftKey));
    byId("strength").addEventListener("input", () => this.drawAttention());
    byId("sort-channels").addEventListener("change", () => this.drawAttention());
    document.addEventListener("keydown", (event) => this.onKey(event));
  }

  choose(token, other) {
    const pick = (this.state.pick === "key") !== Boolean(other) ? "key" : "query";
    this.set(pick === "query" ? { query: token, key: null, hover: null } : { key: token, hover: null });
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName)) return;
    const { data } = this.run;
    const { block, head, query } = this.state;
    const heads = Array.from({ length: this.run.H }, (_, h) => h);
    if (event.key.startsWith("Arrow")) {
      if (event.shiftKey) this.set({ key: this.neighbour(this.key, event.key), hover: null });
      else this.set({ query: this.neighbour(query, event.key), key: null, hover: null });
      const focused = document.activeElement;
      if (focused?.classList.contains("patch") && !event.shiftKey && this.state.query > 0) {
        this.patches[this.state.query - 1].focus({ preventScroll: true });
      }
    } else if (event.key === "[" || event.key === "]") {
      this.set({ block: this.move(data.blocks, block, event.key === "]" ? 1 : -1) });
    } else if (event.key === "," || event.key === ".") {
      this.set({ head: this.move(heads, head, event.key === "." ? 1 : -1) });
    } else if (event.key === "c") {
      this.set({ query: 0, key: null, hover: null });
    } else return;
    event.preventDefault();
  }

  // The prediction

  fillHero() {
    const { data, T, H, N } = this.run;
    const shares = Lapis.softmax(data.logits);
    const order = shares.map((_, n) => n).sort((a, b) => shares[b] - shares[a]);
    byId("source").textContent = [data.model, data.picture].filter(Boolean).join(" · ");
    byId("input").src = data.image;
    byId("under").src = data.image;
    byId("answer").textContent = data.classes[order[0]];
    byId("prediction").textContent = data.label ? `Prediction, labelled ${data.label}` : "Prediction";
    byId("classes").replaceChildren(
      ...order
        .slice(0, 5)
        .map((n, rank) =>
          element(
            "div",
            { className: rank ? "class" : "class best" },
            element("span", { className: "class-name" }, data.classes[n]),
            element("span", { className: "class-bar" }, element("span", { style: `width:${100 * shares[n]}%` })),
            element("span", { className: "class-share" }, percent(shares[n])),
          ),
        ),
    );
    const sum = (list) => list.reduce((a, b) => a + b, 0);
    const fired = sum(Object.values(data.fired).map(sum));
    const neurons = sum(Object.entries(data.neurons).map(([point, n]) => n * data.fired[point].length));
    const paper = data.energy[0];
    describe(byId("facts"), [
      ["spikes", fired.toLocaleString("en"), "at most one a neuron"],
      ["neurons that fired", percent(fired / neurons), `${neurons.toLocaleString("en")} neurons`],
      ["energy", `${Charts.number(paper.energy_mj)} mJ`, `convention ${paper.convention}, ${paper.node}`],
      [
        "against dense",
        paper.ratio ? `${paper.ratio.toFixed(1)} × less` : "–",
        `dense ${Charts.number(paper.dense_energy_mj)} mJ`,
      ],
      ["window", `T = ${T} steps`],
      ["network", `${data.config.depth} × ${H} heads`, `${data.config.depth} blocks of ${H} heads, ${N} tokens`],
    ]);
    byId("note").textContent = data.note;
    byId("note").hidden = !data.note;
    const left = data.config.depth - data.blocks.length;
    const missing = Object.keys(data.fired).filter((point) => !data.points.includes(point));
    const cut = [
      left ? `${left} of ${data.config.depth} blocks` : "",
      missing.length ? `the spikes of ${missing.map((p) => POINT_NAMES[p]).join(", ")}` : "",
    ].filter(Boolean);
    byId("foot").replaceChildren(
      element(
        "p",
        {},
        `Lapis ${data.version}. Codes from ${data.executor || "one run"}; distances, affinities, row exponents and weights are computed by this page from those codes. Nothing is loaded from anywhere.`,
      ),
      ...(cut.length
        ? [
            element(
              "p",
              {},
              `To keep the page small it leaves out ${cut.join(" and ")}; activity and energy count everything.`,
            ),
          ]
        : []),
    );
  }

  // Attention

  buildPatches() {
    const { grid } = this.run;
    const host = byId("patches");
    host.style.setProperty("--grid", grid);
    this.patches = Array.from({ length: grid * grid }, (_, n) => {
      const button = element("button", { type: "button", className: "patch" });
      button.addEventListener("click", (event) => this.choose(n + 1, event.shiftKey));
      button.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && this.set({ hover: n + 1 }));
      return button;
    });
    host.replaceChildren(...this.patches);
    host.addEventListener("pointerleave", () => this.state.hover !== null && this.set({ hover: null }));
  }

  buildAtlas() {
    const { data, H, grid } = this.run;
    const host = byId("atlas");
    host.style.setProperty("--blocks", data.blocks.length);
    this.thumbs = [];
    for (let head = 0; head < H; head++) {
      for (const block of data.blocks) {
        const picture = element("canvas", { width: grid, height: grid });
        const button = element(
          "button",
          { type: "button", className: "thumb", title: `block ${block}, head ${head}` },
          picture,
        );
        button.addEventListener("click", () => this.set({ block, head }));
        this.thumbs.push({ block, head, button, picture });
      }
    }
    host.replaceChildren(
      ...this.thumbs.map((thumb) => thumb.button),
      ...data.blocks.map((block) => element("span", { className: "thumb-name", ariaHidden: "true" }, String(block))),
    );
  }

  drawAttention() {
    const { run } = this;
    const { block, head, query } = this.state;
    const { key, row } = this;
    byId("where").textContent = `block ${block}, head ${head}, ${this.name(query)}`;
    this.drawPatches(row, key);
    this.drawAtlas();
    this.drawRow(row, key);
    this.drawLatencies(row, key);
    byId("membrane").dataset.distance = row.D[key];
    Charts.membrane(byId("membrane"), {
      D: row.D,
      tau: run.tau(block, head),
      chosen: row.D[key],
      log: this.state.axis === "log",
      k: run.data.config.row_scale === "pow2" ? row.k : null,
      label: `A membrane of one leaks for ${row.D[key]} steps to ${Charts.number(row.A[key])}.`,
    });
    const scaled =
      run.data.config.row_scale === "pow2" ? `shifted by 2${Charts.power(-row.k)}` : "divided by the row's sum";
    byId("membrane-says").textContent =
      `A unit membrane loses a share each step, β = exp(−1/τ) = ${Math.exp(-1 / run.tau(block, head)).toFixed(4)}. After D = ${row.D[key]} steps ` +
      `${Charts.number(row.A[key])} is left: the affinity. ${scaled[0].toUpperCase()}${scaled.slice(1)} it is the weight W = ${Charts.number(row.W[key])}. Ticks on the axis: all ${run.N} keys.`;
    this.drawReadout(row);
  }

  /** What the colours show, as shares of the range 0..1, bright for near. */
  shades(row) {
    const values = row[{ weight: "W", affinity: "A", distance: "D" }[this.state.show]];
    const low = this.state.show === "distance" ? Math.min(...values) : 0;
    const high = Math.max(...values);
    const span = high - low || 1;
    const near = this.state.show === "distance" ? (v) => (high - v) / span : (v) => (v - low) / span;
    return { values, low, high, shares: values.map(near) };
  }

  drawPatches(row, key) {
    const { query } = this.state;
    const { values, low, high, shares } = this.shades(row);
    const strength = Number(byId("strength").value) / 100;
    const letter = { weight: "W", affinity: "A", distance: "D" }[this.state.show];
    const paint = (button, token) => {
      button.style.setProperty("--heat", Charts.colour(shares[token]));
      button.classList.toggle("is-query", token === query);
      button.classList.toggle("is-key", token === key);
      button.setAttribute(
        "aria-label",
        `${this.name(token)}, ${letter} ${Charts.number(values[token])}${token === query ? ", the query" : ""}${token === key ? ", the key" : ""}`,
      );
      button.setAttribute("aria-pressed", String(token === query));
    };
    byId("patches").style.setProperty("--strength", strength);
    this.patches.forEach((button, n) => {
      paint(button, n + 1);
      button.tabIndex = n + 1 === query || (query === 0 && n === 0) ? 0 : -1;
    });
    const classToken = byId("class-token");
    paint(classToken, 0);
    classToken.style.color = Charts.inkOn(shares[0]);
    const far = this.state.show === "distance";
    byId("scale-low").textContent = `${letter} ${Charts.number(far ? high : low)}`;
    byId("scale-high").textContent = Charts.number(far ? low : high);
  }

  drawAtlas() {
    const { run } = this;
    const { block, head, query } = this.state;
    for (const thumb of this.thumbs) {
      const on = thumb.block === block && thumb.head === head;
      thumb.button.setAttribute("aria-pressed", String(on));
      thumb.button.setAttribute("aria-label", `block ${thumb.block}, head ${thumb.head}`);
      if (thumb.query === query) continue;
      thumb.query = query;
      const { W } = run.row(thumb.block, thumb.head, query);
      const patches = W.slice(1);
      const top = Math.max(...patches) || 1;
      const pen = thumb.picture.getContext("2d");
      patches.forEach((w, n) => {
        pen.fillStyle = Charts.colour(w / top);
        pen.fillRect(n % run.grid, Math.floor(n / run.grid), 1, 1);
      });
    }
  }

  drawRow(row, key) {
    const { run } = this;
    const { block, head, query } = this.state;
    const pow2 = run.data.config.row_scale === "pow2";
    const tau = run.tau(block, head);
    describe(byId("row-facts"), [
      ["τ", Charts.number(tau, 4), "time constant of this head, in leak steps"],
      ["nearest D", String(Math.min(...row.D)), "least distance in the row"],
      ["log₂ Σ A", row.log2Z.toFixed(3), "the row's mass before scaling"],
      ["k", pow2 ? String(row.k) : "–", "round(log₂ Σ A): the row is shifted by this many bits"],
      ["Σ W", row.mass.toFixed(3), pow2 ? "after the shift: between 0.707 and 1.414" : "one"],
    ]);
    const ranked = this.ranked();
    const top = row.W[ranked[0]] || 1;
    const shown = ranked.slice(0, 6);
    if (!shown.includes(key)) shown[5] = key;
    byId("nearest").replaceChildren(
      ...shown.map((j) => {
        const button = element(
          "button",
          { type: "button", className: j === key ? "near is-key" : "near" },
          this.thumbnail(j),
          element("span", { className: "near-name" }, this.name(j) + (j === query ? " (itself)" : "")),
          element("span", { className: "near-d" }, `D ${row.D[j]}`),
          element("span", { className: "near-bar" }, element("span", { style: `width:${(100 * row.W[j]) / top}%` })),
          element("span", { className: "near-w" }, `W ${row.W[j].toFixed(3)}`),
        );
        button.addEventListener("click", () => this.set({ key: j, hover: null }));
        return element("li", {}, button);
      }),
    );
  }

  /** A patch cut out of the image, by CSS alone. */
  thumbnail(token) {
    const { grid, data } = this.run;
    const cut = element("span", { className: "cut", ariaHidden: "true" });
    if (token === 0) return Object.assign(cut, { className: "cut no-patch", textContent: "cls" });
    const step = grid > 1 ? 100 / (grid - 1) : 0;
    const column = (token - 1) % grid;
    const row = Math.floor((token - 1) / grid);
    cut.style.cssText = `background-image:url(${data.image});background-size:${grid * 100}% ${grid * 100}%;background-position:${column * step}% ${row * step}%`;
    return cut;
  }

  drawLatencies(row, key) {
    const { run } = this;
    const { block, head, query } = this.state;
    const place = (code) => run.T - code;
    const pairs = Array.from(run.head(block, "q", query, head), (z, c) => [
      place(z),
      place(run.head(block, "k", key, head)[c]),
    ]);
    if (byId("sort-channels").checked) pairs.sort((a, b) => Math.abs(b[0] - b[1]) - Math.abs(a[0] - a[1]));
    const delay = run.delay(block, head, query, key);
    const equal = pairs.filter(([a, b]) => a === b).length;
    byId("query-name").textContent = this.name(query);
    byId("key-name").textContent = this.name(key);
    Charts.latencies(byId("latencies"), {
      query: pairs.map((pair) => pair[0]),
      key: pairs.map((pair) => pair[1]),
      delay,
      T: run.T,
      signed: run.low("q") < 0,
      label: `First-spike times of ${this.name(query)} and ${this.name(key)} in ${run.C} channels; their differences sum to ${row.D[key] - delay}.`,
    });
    byId("distance-sum").textContent =
      `D = Σ |t(query) − t(key)| = ${row.D[key] - delay}` +
      (delay ? `, and ${delay} steps of delay for the place: ${row.D[key]}` : "") +
      `. ${equal} of ${run.C} channels fire at the same time or are both silent, and add nothing.`;
  }

  drawReadout(row) {
    const { run } = this;
    const { block, head, query } = this.state;
    const made = run.readout(block, head, query, row);
    byId("readout-card").hidden = !made;
    if (!made) return;
    const says = `${made.equal} of ${run.C} codes equal what the network fired at its readout`;
    Charts.readout(byId("readout"), {
      codes: made.codes,
      fired: made.fired,
      low: run.low("readout"),
      T: run.T,
      label: says,
    });
    byId("readout-says").textContent =
      `Value spikes, weighted by this row and coded again. Computed here from q, k and v: ${says}.`;
  }

  // Spikes

  buildRaster() {
    const { data, T } = this.run;
    const option = (value, text) => element("option", { value, textContent: text });
    byId("raster-block").replaceChildren(option("", "the one above"), ...data.blocks.map((b) => option(b, String(b))));
    byId("raster-point").replaceChildren(...data.points.map((p) => option(p, POINT_NAMES[p])));
    byId("raster-point").value = this.state.point;
    byId("step").max = T;
    byId("step").value = T;
    const redrawOn = (id, changesOf) =>
      byId(id).addEventListener("input", () => {
        Object.assign(this.state, changesOf(byId(id).value));
        this.drawRaster();
      });
    redrawOn("raster-block", (value) => ({ rasterBlock: value === "" ? null : Number(value) }));
    redrawOn("raster-point", (value) => ({ point: value }));
    redrawOn("raster-scope", (value) => ({ scope: value }));
    redrawOn("raster-sort", () => ({}));
    byId("step").addEventListener("input", () => this.stop());
    redrawOn("step", (value) => ({ step: Number(value) }));
    byId("play").addEventListener("click", () => (this.playing ? this.stop() : this.play()));
  }

  play() {
    this.state.step = 0;
    byId("play").textContent = "❚❚";
    this.playing = setInterval(() => {
      this.state.step += 1;
      byId("step").value = this.state.step;
      if (this.state.step >= this.run.T) this.stop();
      this.drawRaster();
    }, 260);
    this.drawRaster();
  }

  stop() {
    clearInterval(this.playing);
    this.playing = null;
    byId("play").textContent = "▶";
  }

  drawRaster() {
    const { run } = this;
    const { point, scope, step, query } = this.state;
    const block = this.state.rasterBlock ?? this.state.block;
    const tokens = scope === "token" ? [query] : Array.from({ length: run.N }, (_, n) => n);
    const codes = tokens.flatMap((token) => Array.from(run.token(block, point, token)));
    const counts = new Array(run.T).fill(0);
    for (const code of codes) if (code) counts[run.latency(code)] += 1;
    const fired = counts.reduce((a, b) => a + b, 0);
    const soFar = counts.slice(0, step).reduce((a, b) => a + b, 0);
    const whose = scope === "token" ? this.name(query) : `all ${run.N} tokens`;
    const says =
      `Block ${block}, ${POINT_NAMES[point]}, ${whose}: ${fired.toLocaleString("en")} of ${codes.length.toLocaleString("en")} neurons fire (${percent(fired / codes.length)}), ` +
      `${(codes.length - fired).toLocaleString("en")} stay silent` +
      (step < run.T ? `; ${soFar.toLocaleString("en")} have fired before step ${step}.` : ".");
    const sorted = byId("raster-sort").checked;
    if (sorted) codes.sort((a, b) => Math.abs(b) - Math.abs(a) || b - a);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    Charts.histogram(byId("histogram"), { counts, step, label: `Spikes a step: ${counts.join(", ")}.` });
    byId("raster").setAttribute("aria-label", says);
    Charts.raster(byId("raster"), {
      codes,
      T: run.T,
      step,
      sorted,
      height: Math.min(420, Math.max(220, codes.length * 1.6)) + 22,
      colours: { on: colour("--key"), off: colour("--query"), rule: colour("--rule"), ink: colour("--muted") },
    });
    byId("raster-says").textContent = says + (run.low(point) < 0 ? " ON spikes are blue, OFF spikes orange." : "");
  }

  // Activity and energy

  buildActivity() {
    const { data } = this.run;
    const blocks = data.config.depth;
    const cell = (point, block, share) => {
      const shown = data.blocks.includes(block) && data.points.includes(point);
      const node = element(shown ? "button" : "span", {
        className: "cell",
        textContent: percent(share).replace(" %", ""),
      });
      node.style.background = Charts.colour(share);
      node.style.color = Charts.inkOn(share);
      if (shown) {
        node.type = "button";
        node.setAttribute("aria-label", `${POINT_NAMES[point]}, block ${block}: ${percent(share)} fire`);
        node.addEventListener("click", () => {
          Object.assign(this.state, { point, rasterBlock: block });
          byId("raster-point").value = point;
          byId("raster-block").value = block;
          this.drawRaster();
          byId("raster-title").scrollIntoView({
            behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth",
          });
        });
      }
      return element("td", {}, node);
    };
    const head = element("tr", {}, element("th", { scope: "col" }, "% by block"));
    for (let block = 0; block < blocks; block++) head.append(element("th", { scope: "col" }, String(block)));
    head.append(element("th", { scope: "col" }, "all"));
    const rows = Object.entries(data.fired).map(([point, fired]) => {
      const line = element("tr", {}, element("th", { scope: "row" }, POINT_NAMES[point]));
      line.append(...fired.map((count, block) => cell(point, block, count / data.neurons[point])));
      const all = fired.reduce((a, b) => a + b, 0) / (data.neurons[point] * blocks);
      line.append(element("td", { className: "all" }, percent(all)));
      return line;
    });
    byId("activity").replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
  }

  buildEnergy() {
    const select = byId("convention");
    select.append(
      ...this.run.data.energy.map((made, n) => element("option", { value: n, textContent: made.convention })),
    );
    select.addEventListener("input", () => {
      this.state.convention = Number(select.value);
      this.drawEnergy();
    });
  }

  drawEnergy() {
    const made = this.run.data.energy[this.state.convention];
    const rows = made.rows.map((row) => ({ name: row.operator, ours: row.ours.mj, dense: row.dense.mj }));
    rows.push({ name: "whole model", ours: made.energy_mj, dense: made.dense_energy_mj, total: true });
    const ratio = made.ratio ? `${made.ratio.toFixed(1)} times less` : "nothing";
    const says = `${Charts.number(made.energy_mj)} mJ for this image, ${ratio} than ${Charts.number(made.dense_energy_mj)} mJ dense`;
    byId("convention-says").textContent = `${made.convention}: ${made.counted}. Costs: ${made.node}.`;
    Charts.energy(byId("energy"), { rows, label: says });
    Charts.energyKey(byId("energy-says"), says);
    const line = (tag, cells) => element("tr", {}, ...cells.map((text) => element(tag, {}, text)));
    const count = (part) => (part.count ? Math.round(part.count).toLocaleString("en") : "–");
    byId("energy-table").replaceChildren(
      element("thead", {}, line("th", ["operator", "operations", "kind", "mJ", "dense operations", "dense mJ"])),
      element(
        "tbody",
        {},
        ...made.rows.map((row) =>
          line("td", [
            row.operator,
            count(row.ours),
            row.ours.kinds.join(", ").replaceAll("_", " "),
            Charts.number(row.ours.mj),
            count(row.dense),
            Charts.number(row.dense.mj),
          ]),
        ),
      ),
    );
  }
}

Lapis.ready = Lapis.Run.open(JSON.parse(byId("data").textContent)).then(
  (run) => {
    Lapis.run = run;
    Lapis.page = new Page(run);
    Lapis.page.start();
    byId("ramp").style.background = `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map(Charts.colour).join(", ")})`;
  },
  (error) => {
    byId("trouble").textContent = `This page could not be read: ${error.message}. It needs a browser of 2023 or later.`;
    throw error;
  },
);
window.Lapis = Lapis;
