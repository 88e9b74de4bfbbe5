// The panels that the map drives: the nearest keys, first spikes, the membrane, the readout.
"use strict";

function describe(host, facts) {
  host.replaceChildren(
    ...facts.map(([name, value, title]) =>
      element("div", { title: title ?? "" }, element("dt", {}, name), element("dd", {}, value)),
    ),
  );
}

Lapis.Readings = class {
  constructor(page) {
    this.page = page;
    byId("sort-channels").addEventListener("change", () => this.drawLatencies());
    Dom.radios(document.querySelector('[data-choice="axis"]'), (axis) => page.set({ axis }));
    Dom.roving(byId("nearest"), ".near", () => {});
  }

  get run() {
    return this.page.run;
  }

  draw() {
    const { state, head } = this.page;
    byId("which-head").textContent =
      state.head === null
        ? `The map averages the heads. These panels show head ${head}, which gives this key the largest weight; choose a head to keep it.`
        : `These panels show head ${head} of block ${state.block}.`;
    Dom.check(document.querySelector('[data-choice="axis"]'), state.axis);
    this.drawNearest();
    this.drawLatencies();
    this.drawMembrane();
    this.drawReadout();
  }

  drawNearest() {
    const { key, mapRow, state } = this.page;
    const ranked = this.page.ranked();
    const top = mapRow.W[ranked[0]] || 1;
    const shown = ranked.slice(0, 6);
    if (!shown.includes(key)) shown[shown.length - 1] = key;
    const focused = byId("nearest").contains(document.activeElement);
    byId("nearest").replaceChildren(
      ...shown.map((j) => {
        const itself = j === state.query ? " (itself)" : "";
        const button = element(
          "button",
          { type: "button", className: j === key ? "near is-key" : "near" },
          this.thumbnail(j),
          element("span", { className: "near-name" }, this.run.name(j).replace("patch ", "") + itself),
          element("span", { className: "near-d" }, `D ${Charts.number(mapRow.D[j], 4)}`),
          element("span", { className: "near-bar" }, element("span", { style: `width:${(100 * mapRow.W[j]) / top}%` })),
          element("span", { className: "near-w" }, `W ${mapRow.W[j].toFixed(3)}`),
        );
        button.setAttribute("aria-pressed", String(j === key));
        button.addEventListener("click", () => this.page.set({ key: j, hover: null }));
        return element("li", {}, button);
      }),
    );
    const buttons = [...byId("nearest").querySelectorAll(".near")];
    const chosen = buttons[shown.indexOf(key)];
    Dom.oneStop(buttons, chosen);
    if (focused) chosen.focus({ preventScroll: true });
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

  drawLatencies() {
    const { run } = this;
    const { key, row, head } = this.page;
    const { block, query } = this.page.state;
    const place = (code) => run.T - code;
    const keys = run.head(block, "k", key, head);
    const pairs = Array.from(run.head(block, "q", query, head), (z, c) => [place(z), place(keys[c])]);
    const sorted = byId("sort-channels").checked;
    if (sorted) pairs.sort((a, b) => Math.abs(b[0] - b[1]) - Math.abs(a[0] - a[1]));
    const delay = run.delay(block, head, query, key);
    const equal = pairs.filter(([a, b]) => a === b).length;
    byId("query-name").textContent = run.name(query);
    byId("key-name").textContent = run.name(key);
    Charts.latencies(byId("latencies"), {
      query: pairs.map((pair) => pair[0]),
      key: pairs.map((pair) => pair[1]),
      delay,
      T: run.T,
      signed: run.low("q") < 0,
      order: sorted ? "channels, largest difference first" : `channels 0 to ${run.C - 1}`,
      label: `First-spike times of ${run.name(query)} and ${run.name(key)} in ${run.C} channels; their differences sum to ${row.D[key] - delay}.`,
    });
    byId("distance-sum").textContent =
      `D = Σ |t(query) − t(key)| = ${row.D[key] - delay}` +
      (delay ? `, and ${delay} steps of delay for the place: ${row.D[key]}` : "") +
      `. ${equal} of ${run.C} channels fire at the same time or are both silent, and add nothing.`;
  }

  drawMembrane() {
    const { run } = this;
    const { key, row, head, state } = this.page;
    const tau = run.tau(state.block, head);
    const pow2 = run.data.config.row_scale === "pow2";
    describe(byId("row-facts"), [
      ["τ", Charts.number(tau, 4), "time constant of this head, in leak steps"],
      ["nearest D", String(Math.min(...row.D)), "least distance in the row"],
      ["log₂ Σ A", row.log2Z.toFixed(2), "the row's mass before scaling"],
      ["k", pow2 ? String(row.k) : "–", "round(log₂ Σ A): the row is shifted by this many bits"],
      ["Σ W", row.mass.toFixed(3), pow2 ? "after the shift: between 0.707 and 1.414" : "one"],
    ]);
    byId("membrane").dataset.distance = row.D[key];
    Charts.membrane(byId("membrane"), {
      D: row.D,
      tau,
      chosen: row.D[key],
      log: state.axis === "log",
      k: pow2 ? row.k : null,
      label: `A membrane of one leaks for ${row.D[key]} steps to ${Charts.number(row.A[key])}.`,
    });
    const scaled = pow2 ? `Shifted by 2${Charts.power(-row.k)}` : "Divided by the row's sum";
    byId("membrane-says").textContent =
      `A unit membrane loses a share each step, β = exp(−1/τ) = ${Math.exp(-1 / tau).toFixed(4)}. After D = ${row.D[key]} steps ` +
      `${Charts.number(row.A[key])} is left: the affinity. ${scaled} it is the weight W = ${Charts.number(row.W[key])}. Ticks on the axis: all ${run.N} keys.`;
  }

  drawReadout() {
    const { run } = this;
    const { head, row } = this.page;
    const { block, query } = this.page.state;
    const made = run.readout(block, head, query, row);
    byId("readout").hidden = !made;
    if (!made) {
      byId("readout-says").textContent = run.data.readout
        ? "This page leaves out the spikes of value or readout to stay small, so the readout cannot be shown."
        : "This network does not code its readout as spikes.";
      return;
    }
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
};
