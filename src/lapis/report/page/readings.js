// The panels that the map drives: the nearest keys, first spikes, the membrane or the rule, the readout.
"use strict";

Lapis.Readings = class {
  constructor(page) {
    this.page = page;
    this.rule = page.run.data.tau ? new Lapis.Membrane(page) : new Lapis.Rule(page);
    byId("sort-channels").addEventListener("change", () => this.drawLatencies());
    Dom.roving(byId("nearest"), ".near", () => {});
  }

  get run() {
    return this.page.run;
  }

  draw() {
    const { state, head } = this.page;
    byId("which-head").textContent =
      state.head === null
        ? `${Lapis.Rule.averaged(this.run, state.block)} These panels show head ${head}, ${Lapis.Rule.strongest(this.run, state.block)}; choose a head to keep it.`
        : `These panels show head ${head} of block ${state.block}.`;
    this.drawNearest();
    this.drawLatencies();
    this.rule.draw();
    this.drawReadout();
  }

  drawNearest() {
    const { key, mapRow, state } = this.page;
    const ranked = this.page.ranked();
    const top = mapRow.W?.[ranked[0]] || 1;
    const letter = Lapis.Rule.distance(this.run);
    byId("nearest").classList.toggle("recorded", !this.run.byDistance);
    byId("nearest-title").textContent = Lapis.Rule.ranking(this.run, state.block);
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
          element("span", { className: "near-d" }, `${letter} ${Charts.number(mapRow.D[j], 4)}`),
          ...(mapRow.W ? this.weightCells(mapRow.W[j], top) : []),
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

  /** The bar and the number of a weight, beside the largest one. */
  weightCells(w, top) {
    const bar = element("span", { style: `width:${Math.abs((100 * w) / top)}%` });
    const number = this.run.byDistance ? w.toFixed(3) : Charts.number(w);
    return [element("span", { className: "near-bar" }, bar), element("span", { className: "near-w" }, `W ${number}`)];
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
      `${Lapis.Rule.distance(run)} = Σ |t(query) − t(key)| = ${row.D[key] - delay}` +
      (delay ? `, and ${delay} steps of delay for the place: ${row.D[key]}` : "") +
      `. ${equal} of ${run.C} channels fire at the same time or are both silent, and add nothing.`;
  }

  drawReadout() {
    const { run } = this;
    const { head, row } = this.page;
    const { block, query } = this.page.state;
    const made = run.readout(block, head, query, row);
    byId("readout").hidden = !made;
    const wrong = made?.exact && made.equal < run.C;
    byId("readout-wrong").hidden = !wrong;
    byId("readout-wrong").textContent = wrong
      ? `This page computes ${run.C - made.equal} of ${run.C} codes otherwise than the network fired them. In a deployed network all must be equal: do not trust this page, and report it with the model and the image.`
      : "";
    if (!made) {
      byId("readout-says").textContent = run.data.readout
        ? "This page leaves out the spikes of value or readout to stay small, so the readout cannot be shown."
        : "This network does not code its readout as spikes.";
      return;
    }
    const says =
      made.equal === null
        ? `The ${run.C} codes of the readout`
        : `${made.equal} of ${run.C} codes equal what the network fired at its readout`;
    Charts.readout(byId("readout"), {
      codes: made.codes,
      fired: made.fired,
      low: run.low("readout"),
      T: run.T,
      label: says,
    });
    byId("readout-says").textContent =
      made.equal === null
        ? "The codes that the network fired at its readout. The page has no exact weights to compute them from."
        : `Value spikes, weighted by this row and coded again. Computed here from q, k and v: ${says}.`;
  }
};
