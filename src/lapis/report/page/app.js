// The explain page: what is chosen, kept in its address, and which parts are drawn again when that changes.
"use strict";

const ADDRESS_MILLISECONDS = 250;

class Page {
  constructor(run) {
    this.run = run;
    const { data } = run;
    const patches = data.rollout?.slice(1) ?? [0];
    // The page opens on the token that decides: the class token or, where patches are averaged, the one that counts most.
    const decides = data.decides === "patches" ? patches.indexOf(Math.max(...patches)) + 1 : 0;
    this.opening = {
      block: data.blocks[data.blocks.length - 1],
      head: null,
      query: decides,
      key: null,
      pick: "query",
      show: "weight",
      axis: "log",
      point: "q",
      rasterBlock: null,
      scope: "token",
      convention: data.energy[0].convention,
    };
    this.state = { ...this.opening, hover: null };
    this.rows = new Map();
  }

  start() {
    const refused = this.readAddress();
    this.summary = new Lapis.Summary(this);
    this.decision = new Lapis.Decision(this);
    this.lens = new Lapis.Lens(this);
    this.readings = new Lapis.Readings(this);
    this.raster = new Lapis.Raster(this);
    this.parts = [this.decision, this.lens, this.readings, this.raster, this.summary];
    byId("page").hidden = false;
    byId("trouble").remove();
    this.say(refused);
    this.show(this.run);
    Dom.themeButton(() => this.drawAll());
    Dom.onWidth(() => this.drawAll());
    addEventListener("hashchange", () => {
      Object.assign(this.state, this.opening);
      this.say(this.readAddress());
      this.drawAll();
    });
  }

  /** Show a run of the same network, perhaps another one than before; what is chosen stays. */
  show(run) {
    this.run = run;
    this.rowsOf = undefined;
    for (const part of this.parts) part.load?.();
    this.drawAll();
  }

  set(changes) {
    Object.assign(this.state, changes);
    const touches = (...names) => names.some((name) => name in changes);
    if (touches("block", "head", "query", "key", "hover", "show", "pick", "axis")) {
      this.lens.draw();
      this.readings.draw();
    }
    if (touches("query", "block", "rasterBlock", "point", "scope")) this.raster.draw();
    if (touches("convention")) this.summary.draw();
    if (!touches("hover") || Object.keys(changes).length > 1) this.noteAddress();
  }

  drawAll() {
    for (const part of this.parts) part.draw();
  }

  choose(token, other) {
    const pick = (this.state.pick === "key") !== Boolean(other) ? "key" : "query";
    this.set(pick === "query" ? { query: token, key: null, hover: null } : { key: token, hover: null });
  }

  // What the choice means

  /** A row of the chosen query, computed once; `make` is asked if it is new. */
  kept(name, make) {
    if (this.rowsOf !== this.state.query) {
      this.rows.clear();
      this.rowsOf = this.state.query;
    }
    if (!this.rows.has(name)) this.rows.set(name, make());
    return this.rows.get(name);
  }

  headRow(block, head) {
    return this.kept(`${block} ${head}`, () => this.run.row(block, head, this.state.query));
  }

  meanRow(block) {
    return this.kept(`${block} mean`, () => this.run.meanRow(block, this.state.query));
  }

  /** The row that the map shows: of one head, or the mean of all. */
  get mapRow() {
    const { block, head } = this.state;
    return head === null ? this.meanRow(block) : this.headRow(block, head);
  }

  /** Keys from the strongest to the weakest. */
  ranked() {
    const strength = Lapis.strength(this.mapRow);
    return strength.map((_, j) => j).sort((a, b) => strength[b] - strength[a] || a - b);
  }

  /** The key shown: the one under the pointer, the one chosen, or the strongest other token. */
  get key() {
    const { hover, key, query } = this.state;
    return hover ?? key ?? this.ranked().find((j) => j !== query) ?? 0;
  }

  /** The head whose spikes the panels show: the chosen one, or the one in which the key is strongest. */
  get head() {
    const { block, head } = this.state;
    if (head !== null) return head;
    const strengths = Array.from({ length: this.run.H }, (_, h) => Lapis.strength(this.headRow(block, h))[this.key]);
    return strengths.indexOf(Math.max(...strengths));
  }

  get row() {
    return this.headRow(this.state.block, this.head);
  }

  // The address

  /** How each part of the choice is written in the address, and what may stand there. */
  get fields() {
    const { data, grid, N, H } = this.run;
    const among = (list) => ({
      write: String,
      allowed: list.map(String),
      read: (text) => list[list.map(String).indexOf(text)],
    });
    const tokens = Array.from({ length: N }, (_, n) =>
      n === 0 ? "class" : `${Math.floor((n - 1) / grid)}.${(n - 1) % grid}`,
    );
    const token = { write: (n) => tokens[n], allowed: tokens, read: (text) => tokens.indexOf(text) };
    const heads = Array.from({ length: H }, (_, h) => String(h));
    return {
      block: among(data.blocks),
      head: {
        write: (head) => (head === null ? "mean" : String(head)),
        allowed: ["mean", ...heads],
        read: (text) => (text === "mean" ? null : Number(text)),
      },
      query: token,
      key: token,
      show: among(this.run.shows),
      axis: among(["log", "linear"]),
      point: among(data.points),
      rasterBlock: among(data.blocks),
      scope: among(["token", "all"]),
      convention: among(data.energy.map((made) => made.convention)),
    };
  }

  /** Browsers refuse an address that changes too often, so that a held key is written once, when it rests. */
  noteAddress() {
    clearTimeout(this.noting);
    this.noting = setTimeout(() => this.writeAddress(), ADDRESS_MILLISECONDS);
  }

  /** Only what differs from the opening is written, so that an untouched page has a plain address. */
  writeAddress() {
    const words = Object.entries(this.fields)
      .filter(([name]) => this.state[name] !== this.opening[name])
      .map(([name, field]) => `${name}=${encodeURIComponent(field.write(this.state[name]))}`);
    history.replaceState(null, "", words.length ? `#${words.join("&")}` : location.pathname + location.search);
  }

  /** Take the choice from the address; what it does not know is returned in words. */
  readAddress() {
    const refused = [];
    for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
      const field = this.fields[name];
      if (field?.allowed.includes(text)) this.state[name] = field.read(text);
      else if (!field) refused.push(`${name}=${text} is not a choice of this page`);
      else {
        const [first, last] = [field.allowed[0], field.allowed[field.allowed.length - 1]];
        refused.push(`${name}=${text} does not exist here; there is ${first} to ${last}`);
      }
    }
    return refused;
  }

  say(refused) {
    byId("address-note").textContent = refused.length ? `From the address: ${refused.join("; ")}.` : "";
    byId("address-note").hidden = !refused.length;
  }
}

// The run is in the page, or the live page makes one.
Lapis.ready = (Lapis.open ?? Lapis.Run.open)(JSON.parse(byId("data").textContent)).then(
  (run) => {
    Lapis.page = new Page(run);
    Lapis.page.start();
    Lapis.opened?.(Lapis.page);
  },
  (error) => {
    byId("trouble").textContent = `This page could not be read: ${error.message}. It needs a browser of 2023 or later.`;
    throw error;
  },
);
Object.defineProperty(Lapis, "run", { get: () => Lapis.page.run });
window.Lapis = Lapis;
