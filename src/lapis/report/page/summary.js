// Sums of the whole run: the prediction with its facts, who fired, and what it cost.
"use strict";

// As many classes as are listed at once.
const SHOWN_CLASSES = 24;

Lapis.Summary = class {
  constructor(page) {
    this.page = page;
    this.fillNotes();
    Dom.roving(
      byId("activity"),
      "button.cell",
      () => {},
      () => this.run.data.blocks.length,
    );
    byId("class-search").addEventListener("input", () => this.drawClasses());
    byId("convention").append(
      ...this.run.data.energy.map((made) =>
        element("option", { value: made.convention, textContent: made.convention }),
      ),
    );
    byId("convention").addEventListener("input", () => page.set({ convention: byId("convention").value }));
  }

  get run() {
    return this.page.run;
  }

  load() {
    this.fillHero();
    this.buildActivity();
  }

  fillHero() {
    const { data, T, H, N } = this.run;
    const shares = Lapis.softmax(data.logits);
    const order = shares.map((_, n) => n).sort((a, b) => shares[b] - shares[a]);
    const { name, says } = Lapis.answer(data, shares);
    byId("source").textContent = [data.model, data.picture, `T = ${T}`].filter(Boolean).join(" · ");
    byId("input").src = data.image;
    byId("answer").textContent = name;
    byId("answer").classList.toggle("long", name.length > 24);
    byId("prediction").textContent = [says, data.label ? `labelled ${data.label}` : ""].filter(Boolean).join(", ");
    byId("classes").replaceChildren(
      ...order
        .slice(0, 5)
        .map((n, rank) =>
          element(
            "div",
            { className: rank ? "class" : "class best" },
            element("span", { className: "class-name", title: data.classes[n] }, data.classes[n]),
            element("span", { className: "class-bar" }, element("span", { style: `width:${100 * shares[n]}%` })),
            element("span", { className: "class-share" }, Lapis.percent(shares[n])),
          ),
        ),
    );
    if (!this.order) byId("all-classes").open = data.classes.length <= SHOWN_CLASSES;
    Object.assign(this, { shares, order });
    this.drawClasses();
    const sum = (list) => list.reduce((a, b) => a + b, 0);
    const fired = sum(Object.values(data.fired).map(sum));
    const values = sum(Object.entries(data.neurons).map(([point, n]) => n * data.fired[point].length));
    const paper = data.energy[0];
    Dom.describe(byId("facts"), [
      ["spikes", fired.toLocaleString("en"), "at most one per value"],
      ["all values that spike", Lapis.percent(fired / values), `of ${values.toLocaleString("en")} values`],
      ["energy, estimated", `${Charts.number(paper.energy_mj)} mJ`, `convention ${paper.convention}, ${paper.node}`],
      ["latency", `${paper.latency_steps} steps`, "all windows in turn, deadlines included"],
      [
        "against plain quantized",
        paper.quantized_ratio ? Charts.times(paper.quantized_ratio) : "–",
        paper.skipping_ratio ? `${Charts.times(paper.skipping_ratio)} if that skips zeros` : "",
      ],
      ["against dense int8", Charts.times(data.int8_ratio), "both priced by the table 45nm_int8"],
      [
        "against dense FP32",
        paper.ratio ? Charts.times(paper.ratio) : "–",
        `dense ${Charts.number(paper.dense_energy_mj)} mJ`,
      ],
      [
        "network",
        `${data.config.depth} × ${H} heads`,
        `${data.config.depth} blocks of ${H} heads, ${N} tokens, a window of ${T} steps`,
      ],
    ]);
  }

  /** What the network can answer: its classes, likeliest first, of which the search leaves some. */
  drawClasses() {
    const { classes, min_score } = this.run.data;
    const { shares, order } = this;
    const many = classes.length > SHOWN_CLASSES;
    byId("class-search").hidden = !many;
    const wanted = many ? byId("class-search").querySelector("input").value.trim().toLowerCase() : "";
    const found = order.filter((n) => classes[n].toLowerCase().includes(wanted));
    byId("classes-says").textContent = `It knows ${classes.length.toLocaleString("en")} classes`;
    byId("classes-note").textContent = min_score
      ? `Below a score of ${Lapis.percent(min_score)} this page says "${Lapis.NONE}".`
      : "It names one of them whatever the image shows.";
    byId("class-list").replaceChildren(
      ...found
        .slice(0, SHOWN_CLASSES)
        .map((n) =>
          element(
            "span",
            {},
            element("b", {}, classes[n]),
            ` ${Lapis.percent(shares[n]).replace(" ", "\u00a0")}${many ? `, place ${(order.indexOf(n) + 1).toLocaleString("en")}` : ""}`,
          ),
        ),
    );
    const left = found.length - SHOWN_CLASSES;
    const none = found.length ? "" : "No class has this in its name.";
    byId("class-more").textContent = left > 0 ? `and ${left.toLocaleString("en")} less likely ones` : none;
  }

  /** What the reader must know before the figures: a note of the run, and what this page leaves out. */
  fillNotes() {
    const { data } = this.run;
    const left = data.config.depth - data.blocks.length;
    const missing = Object.keys(data.fired).filter((point) => !data.points.includes(point));
    const cut = [
      left ? `${left} of ${data.config.depth} blocks` : "",
      missing.length ? `the spikes of ${missing.map((p) => Lapis.POINTS[p]).join(", ")}` : "",
    ].filter(Boolean);
    const notes = [
      cut.length
        ? `To keep the page small it leaves out ${cut.join(" and ")}; rollout, evidence, activity and energy count everything.`
        : "",
    ].filter(Boolean);
    byId("note").textContent = notes.join(" ");
    byId("note").hidden = !notes.length;
    byId("foot").replaceChildren(
      element(
        "p",
        {},
        `Lapis ${data.version}. Codes from ${data.executor || "one run"}; ${Lapis.Rule.computed(this.run)} ` +
          "Blocks, heads, rows, columns, channels and steps count from 0. Nothing is loaded from anywhere.",
      ),
    );
  }

  activityCell(point, block, share) {
    const { data } = this.run;
    const shown = data.blocks.includes(block) && data.points.includes(point);
    const says = `${Lapis.POINTS[point]}, block ${block}: ${Lapis.percent(share)} spike`;
    const node = element(shown ? "button" : "span", {
      className: "cell",
      title: shown ? says : `${says}; its spikes are left out of this page`,
      textContent: Lapis.percent(share).replace(" %", ""),
    });
    node.style.background = Charts.colour(share);
    node.style.color = Charts.inkOn(Charts.colour(share));
    if (shown) {
      node.type = "button";
      node.setAttribute("aria-label", says);
      node.addEventListener("click", () => {
        this.page.set({ point, rasterBlock: block });
        byId("raster-title").scrollIntoView({
          behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth",
        });
      });
    }
    return element("td", {}, node);
  }

  buildActivity() {
    const { data } = this.run;
    const blocks = data.config.depth;
    const column = (text) => element("th", { scope: "col" }, text);
    const numbers = Array.from({ length: blocks }, (_, block) => column(String(block)));
    const head = element("tr", {}, column("% by block"), ...numbers, column("all"));
    const rows = Object.entries(data.fired).map(([point, fired]) => {
      const line = element("tr", {}, element("th", { scope: "row" }, Lapis.POINTS[point]));
      line.append(...fired.map((count, block) => this.activityCell(point, block, count / data.neurons[point])));
      const all = fired.reduce((a, b) => a + b, 0) / (data.neurons[point] * blocks);
      line.append(element("td", { className: "all" }, Lapis.percent(all)));
      return line;
    });
    const table = byId("activity");
    const focused = [...table.querySelectorAll("button.cell")].indexOf(document.activeElement);
    table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
    const cells = [...table.querySelectorAll("button.cell")];
    if (cells.length) Dom.oneStop(cells, cells[focused]);
    cells[focused]?.focus({ preventScroll: true });
  }

  draw() {
    const { data } = this.run;
    const made = data.energy.find((each) => each.convention === this.page.state.convention);
    byId("convention").value = made.convention;
    const says = Charts.energySays(made);
    byId("convention-says").textContent = `${made.convention}: ${made.counted}. Costs: ${made.node}.`;
    Charts.energy(byId("energy"), { rows: Charts.energyRows(made), label: says });
    Charts.energyKey(byId("energy-says"), says);
    const line = (tag, cells) => element("tr", {}, ...cells.map((text) => element(tag, {}, text)));
    const count = (part) => (part.count ? Math.round(part.count).toLocaleString("en") : "–");
    byId("energy-table").replaceChildren(
      element(
        "thead",
        {},
        line("th", ["operator", "mJ", "quantized mJ", "dense mJ", "operations", "dense operations", "kind"]),
      ),
      element(
        "tbody",
        {},
        ...made.rows.map((row) =>
          line("td", [
            row.operator,
            Charts.number(row.ours.mj),
            Charts.number(row.quantized.mj),
            Charts.number(row.dense.mj),
            count(row.ours),
            count(row.dense),
            row.ours.kinds.join(", ").replaceAll("_", " "),
          ]),
        ),
      ),
    );
  }
};
