// The map: where a query looks, on the image, and the pickers of block and head beside it.
"use strict";

Lapis.Lens = class {
  constructor(page) {
    this.page = page;
    this.buildPatches();
    this.buildPickers();
    for (const button of document.querySelectorAll('[data-choice="show"] [role="radio"]'))
      if (!this.run.shows.includes(button.dataset.value)) button.remove();
    document.querySelector('[data-value="distance"] i').textContent = Lapis.Rule.distance(this.run);
    for (const kind of ["pick", "show"])
      Dom.radios(document.querySelector(`[data-choice="${kind}"]`), (value) => page.set({ [kind]: value }));
    byId("class-token").addEventListener("click", (event) => page.choose(0, event.shiftKey));
    byId("strength").addEventListener("input", () => this.draw());
    byId("map-svg").addEventListener("click", () => this.saveSvg());
    byId("map-csv").addEventListener("click", () => this.saveCsv());
    document.querySelector(".lens").addEventListener("keydown", (event) => this.onKey(event));
  }

  get run() {
    return this.page.run;
  }

  /** What depends on the run alone: the image, and that no thumbnail is painted yet. */
  load() {
    byId("under").src = this.run.data.image;
    this.blocksOf = this.headsOf = null;
  }

  buildPatches() {
    const { grid } = this.run;
    const host = byId("patches");
    host.style.setProperty("--grid", grid);
    this.patches = Array.from({ length: grid * grid }, (_, n) => {
      const button = element("button", { type: "button", className: "patch" });
      button.addEventListener("click", (event) => this.page.choose(n + 1, event.shiftKey));
      button.addEventListener(
        "pointerenter",
        (event) => event.pointerType === "mouse" && this.page.set({ hover: n + 1 }),
      );
      return button;
    });
    host.replaceChildren(...this.patches);
    host.addEventListener("pointerleave", () => this.page.state.hover !== null && this.page.set({ hover: null }));
  }

  /** A strip of blocks, heads averaged, and one of the heads of the chosen block; each is one tab stop. */
  buildPickers() {
    const { data, H, grid } = this.run;
    const thumb = (value, name, says, kept = true) => {
      const picture = element("canvas", { width: grid, height: grid });
      const button = element(
        "button",
        { type: "button", className: "thumb", title: says },
        picture,
        element("span", { className: "thumb-name" }, name),
      );
      button.dataset.value = value;
      button.setAttribute("role", "radio");
      button.setAttribute("aria-label", says);
      if (!kept) button.setAttribute("aria-disabled", "true");
      return button;
    };
    const blocks = Array.from({ length: data.config.depth }, (_, block) => {
      const kept = data.blocks.includes(block);
      return thumb(block, String(block), `block ${block}${kept ? "" : ", left out of this page"}`, kept);
    });
    const heads = Array.from({ length: H }, (_, head) => thumb(head, String(head), `head ${head}`));
    byId("blocks").replaceChildren(...blocks);
    byId("heads").replaceChildren(thumb("mean", "mean", "mean of all heads"), ...heads);
    const pick = {
      blocks: (value) => data.blocks.includes(Number(value)) && this.page.set({ block: Number(value) }),
      heads: (value) => this.page.set({ head: value === "mean" ? null : Number(value) }),
    };
    for (const [id, choose] of Object.entries(pick)) {
      const host = byId(id);
      Dom.roving(host, '[role="radio"]', (button) => choose(button.dataset.value), Dom.perLine);
      host.addEventListener("click", (event) => {
        const button = event.target.closest('[role="radio"]');
        if (button) choose(button.dataset.value);
      });
    }
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "INPUT") return;
    const { page } = this;
    const { data, H } = this.run;
    const { block, head, query } = page.state;
    const onMap = this.patches.includes(event.target) || event.target === byId("class-token");
    const heads = [null, ...Array.from({ length: H }, (_, h) => h)];
    if (event.key.startsWith("Arrow") && onMap) {
      if (event.shiftKey) page.set({ key: this.neighbour(page.key, event.key), hover: null });
      else {
        page.set({ query: this.neighbour(query, event.key), key: null, hover: null });
        this.focusQuery();
      }
    } else if (event.key === "[" || event.key === "]") {
      page.set({ block: this.step(data.blocks, block, event.key === "]" ? 1 : -1) });
    } else if (event.key === "," || event.key === ".") {
      page.set({ head: this.step(heads, head, event.key === "." ? 1 : -1) });
    } else if (event.key === "c") {
      page.set({ query: 0, key: null, hover: null });
      this.focusQuery();
    } else return;
    event.preventDefault();
  }

  focusQuery() {
    const { query } = this.page.state;
    (query ? this.patches[query - 1] : byId("class-token")).focus({ preventScroll: true });
  }

  step(list, now, by) {
    return list[Math.min(list.length - 1, Math.max(0, list.indexOf(now) + by))];
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

  draw() {
    const { block, head, query, show } = this.page.state;
    const heads = head === null ? `mean of ${this.run.H} heads` : `head ${head}`;
    const says = `Block ${block}, ${heads}: ${Lapis.Rule.looks(this.run, block, query)}`;
    // Written only when it is new: a screen reader speaks it each time.
    if (byId("where").textContent !== says) byId("where").textContent = says;
    this.drawPatches();
    this.drawPickers();
    Dom.check(document.querySelector('[data-choice="show"]'), show);
    const { W } = this.page.mapRow;
    const even = show === "weight" && W && Lapis.evenness(W.slice(1)) > Lapis.EVEN;
    byId("map-says").textContent = even
      ? "This map says little: the weights of all patches are nearly alike, and the colours stretch small differences."
      : Lapis.Rule.colours(this.run, block, show);
    byId("map-says").hidden = !byId("map-says").textContent;
  }

  /** What the colours show, as shares 0..1 of the range of the patches, bright for near. */
  shades(row, show = this.page.state.show) {
    const values = { weight: row.W, affinity: row.A, distance: row.D }[show];
    if (!values) return { values: [], shares: [], colour: () => "transparent", ends: null };
    const patches = values.slice(1);
    const [low, high] = [Math.min(...patches), Math.max(...patches)];
    const share = (value) => Math.min(1, Math.max(0, (value - low) / (high - low || 1)));
    const near = (value) => (show === "distance" ? 1 - share(value) : share(value));
    return {
      values,
      shares: values.map(near),
      colour: Charts.colour,
      ends: show === "distance" ? [high, low] : [low, high],
    };
  }

  drawPatches() {
    const { query, show } = this.page.state;
    const { key, mapRow } = this.page;
    const { values, shares, colour, ends } = this.shades(mapRow);
    const letter = { weight: "W", affinity: "A", distance: Lapis.Rule.distance(this.run) }[show];
    const paint = (button, token) => {
      button.style.setProperty("--heat", colour(shares[token]));
      button.classList.toggle("is-query", token === query);
      button.classList.toggle("is-key", token === key);
      const marks = `${token === query ? ", the query" : ""}${token === key ? ", the key" : ""}`;
      const value = ends ? `, ${letter} ${Charts.number(values[token])}` : "";
      button.setAttribute("aria-label", `${this.run.name(token)}${value}${marks}`);
      button.setAttribute("aria-pressed", String(token === query));
    };
    byId("patches").style.setProperty("--strength", Number(byId("strength").value) / 100);
    this.patches.forEach((button, n) => {
      paint(button, n + 1);
    });
    Dom.oneStop(this.patches, this.patches[query - 1]);
    const classToken = byId("class-token");
    paint(classToken, 0);
    classToken.style.color = ends ? Charts.inkOn(colour(shares[0])) : "";
    if (!ends) return byId("map-key").replaceChildren();
    const [left, right] = ends.map((end) => `${letter} ${Charts.number(end)}`);
    Charts.ramp(byId("map-key"), Charts.colours(), left, right);
  }

  drawPickers() {
    const { block, head, query } = this.page.state;
    Dom.check(byId("blocks"), String(block));
    Dom.check(byId("heads"), head === null ? "mean" : String(head));
    byId("heads-title").textContent = `Head of block ${block}`;
    if (this.blocksOf !== query) {
      this.blocksOf = query;
      for (const button of byId("blocks").children) {
        if (button.getAttribute("aria-disabled") !== "true")
          this.paintThumb(button, this.page.meanRow(Number(button.dataset.value)));
      }
    }
    const name = `${block} ${query}`;
    if (this.headsOf === name) return;
    this.headsOf = name;
    for (const button of byId("heads").children) {
      const { value } = button.dataset;
      this.paintThumb(button, value === "mean" ? this.page.meanRow(block) : this.page.headRow(block, Number(value)));
    }
  }

  paintThumb(button, row) {
    const { grid } = this.run;
    const { shares, colour } = this.shades(row, "weight");
    const pen = button.firstElementChild.getContext("2d");
    pen.clearRect(0, 0, grid, grid);
    shares.slice(1).forEach((share, n) => {
      pen.fillStyle = colour(share);
      pen.fillRect(n % grid, Math.floor(n / grid), 1, 1);
    });
  }

  fileName() {
    const { block, head, query, show } = this.page.state;
    const heads = head === null ? "mean" : `head${head}`;
    return `${show}-block${block}-${heads}-${this.run.name(query).replaceAll(/[, ]+/g, "-")}`;
  }

  saveSvg() {
    const { grid, data } = this.run;
    const { query } = this.page.state;
    const { values, shares, colour, ends } = this.shades(this.page.mapRow);
    const host = element("div");
    const opacity = Number(byId("strength").value) / 100;
    const svg = Charts.map(host, { image: data.image, grid, label: "" }, (n) => ({
      fill: colour(shares[n + 1]),
      opacity,
      title: ends ? `${this.run.name(n + 1)}: ${Charts.number(values[n + 1])}` : this.run.name(n + 1),
    }));
    const frame = (token, colour, radius) => {
      if (token === 0) return;
      const place = { x: 10 * ((token - 1) % grid) + 0.5, y: 10 * Math.floor((token - 1) / grid) + 0.5 };
      const look = { width: 9, height: 9, rx: radius, fill: "none", stroke: colour, "stroke-width": 1 };
      Charts.make("rect", { ...place, ...look }, svg);
    };
    frame(query, "#d55e00", 0.5);
    frame(this.page.key, "#0072b2", 4.5);
    document.body.append(host);
    Dom.download(`${this.fileName()}.svg`, "image/svg+xml", Charts.standalone(svg));
    host.remove();
  }

  saveCsv() {
    const { grid, N } = this.run;
    const row = this.page.mapRow;
    const columns = Object.entries({ weight: row.W, affinity: row.A, distance: row.D });
    const shown = columns.filter(([, values]) => values);
    const lines = Array.from({ length: N }, (_, j) => [
      j === 0 ? "class token" : "patch",
      j === 0 ? "" : Math.floor((j - 1) / grid),
      j === 0 ? "" : (j - 1) % grid,
      ...shown.map(([, values]) => values[j]),
    ]);
    const head = ["key", "row", "column", ...shown.map(([name]) => name)];
    Dom.download(`${this.fileName()}.csv`, "text/csv", Dom.csv([head, ...lines]));
  }
};
