// The panel of a rule that does not leak: its equation, the weights of a row or the gates of a block; and the words in
// which the page speaks of any rule.
"use strict";

const ORIGINS = {
  paper: "of the paper's own comparison",
  ours: "",
  faithful: "as its authors compute it, on these codes",
  adapted: "adapted",
};

Lapis.Rule = class {
  constructor(page) {
    this.page = page;
    const { rule } = this.run.data;
    document.querySelector('[data-choice="axis"]').remove();
    byId("rule-title").textContent = `The rule ${rule.name}`;
    byId("equation").textContent = rule.equation;
    byId("equation").hidden = !rule.equation;
    byId("origin").textContent = Lapis.Rule.origin(rule);
    byId("origin").hidden = !byId("origin").textContent;
    byId("attention-says").textContent = Lapis.Rule.introduction(this.run);
    if (!this.run.byDistance) byId("attention-title").textContent = `Attention by the rule ${rule.name}`;
  }

  get run() {
    return this.page.run;
  }

  draw() {
    const { block } = this.page.state;
    const gates = this.run.data.gates[block];
    byId("membrane").hidden = !this.run.weighs(block) && !gates;
    if (this.run.weighs(block)) this.drawWeights();
    else if (gates) this.drawGates(gates);
    else {
      byId("row-facts").replaceChildren();
      byId("membrane-says").textContent =
        "The rule works without a weight for each pair, so there is nothing to draw for a query and a key.";
    }
  }

  drawWeights() {
    const { key, row } = this.page;
    const { run } = this;
    const order = row.W.map((_, j) => j).sort((a, b) => row.W[b] - row.W[a] || a - b);
    const silent = row.W.filter((w) => w === 0).length;
    Dom.describe(byId("row-facts"), [
      ...(run.byDistance ? this.tableFacts(row) : []),
      ["Σ W", Charts.number(row.mass), "the sum of the weights of this row"],
      ["largest W", Charts.number(row.W[order[0]]), "the largest weight of this row"],
      ...(run.byDistance ? [] : [["least W", Charts.number(row.W[order[run.N - 1]]), "the least weight of this row"]]),
    ]);
    const place = order.indexOf(key) + 1;
    const label = `Weights of all ${run.N} keys; ${run.name(key)} has ${Charts.number(row.W[key])}, place ${place}.`;
    Charts.weights(byId("membrane"), { W: order.map((j) => row.W[j]), chosen: place - 1, label });
    byId("membrane-says").textContent =
      `The ${run.name(key)} has the weight W = ${Charts.number(row.W[key])}, place ${place} of ${run.N}.` +
      (run.byDistance ? ` Its distance D = ${row.D[key]} gives the affinity ${Charts.number(row.A[key])}.` : "") +
      (silent ? ` ${silent} keys have the weight 0.` : "") +
      (run.signed ? " A weight below zero subtracts the value of its key." : "") +
      (run.data.rule.normalised ? "" : " The weights of a row need not sum to one.");
  }

  tableFacts(row) {
    return [
      ["nearest D", String(Math.min(...row.D)), "least distance in the row"],
      ["log₂ Σ A", row.log2Z.toFixed(2), "the row's mass before scaling"],
      ["k", String(row.k), "round(log₂ Σ A): the row is shifted by this many bits"],
    ];
  }

  drawGates({ of, open }) {
    const { head, state } = this.page;
    const passes = Array.from(open[head], Number);
    const count = passes.filter(Boolean).length;
    const { C, N } = this.run;
    const sides = passes.length > C && of === "channels" ? `, ON then OFF` : "";
    const order = of === "tokens" ? `class token, then patches 1 to ${N - 1}` : `channels 0 to ${C - 1}${sides}`;
    const says = `${count} of ${passes.length} ${of} pass in head ${head}`;
    Dom.describe(byId("row-facts"), [[`${of} that pass`, `${count} of ${passes.length}`, `head ${head}`]]);
    Charts.gates(byId("membrane"), { open: passes, order, label: `${says}.` });
    byId("membrane-says").textContent =
      `Block ${state.block} gives no weights to pairs of tokens; its rule lets ${of} pass or not. ${says}; the faint ones are closed.`;
  }

  // Words. Those of a network with a leak are what its page always said.

  static origin({ system, origin, adapted }) {
    const from = system ? `Rule of ${system}` : "";
    const kind = [ORIGINS[origin], adapted].filter(Boolean).join(": ");
    return from && kind ? `${from}, ${kind}.` : from && `${from}.`;
  }

  static introduction({ data, byDistance }) {
    const choose = "Choose a block, a head or a patch; the panels follow.";
    if (byDistance)
      return `A query looks at every key. A table makes a weight of the distance between their first spikes. ${choose} All of it is recomputed here from the codes of this run.`;
    if (!data.weights) return `This rule works without a weight for each pair of a query and a key. ${choose}`;
    const some = data.weights.weighing.length < data.config.depth ? "In some blocks a" : "A";
    return `${some} query gives every key a weight, which was recorded in this run. ${choose}`;
  }

  /** The letter of the distance of first spikes; D may be another one in the rule's equation. */
  static distance(run) {
    return run.byDistance ? "D" : "ℓ₁";
  }

  static letter(run, row, show) {
    return { weight: row.G ? "passes" : "W", affinity: "A", distance: Lapis.Rule.distance(run) }[show];
  }

  /** What a map of a block shows. */
  static looks(run, block, query) {
    if (run.weighs(block)) return `where the ${run.name(query)} looks`;
    return run.data.gates[block]?.of === "tokens" ? "which tokens pass" : "no weights for pairs of tokens";
  }

  /** What the colours mean, where it must be said. */
  static colours(run, block, show) {
    if (run.byDistance) return "";
    if (show === "distance")
      return "ℓ₁ is the distance of first spikes, Σ |t(query) − t(key)|; the rule may compare otherwise.";
    if (run.weighs(block)) return run.signed ? "Blue adds the value of a key, orange subtracts it, grey is zero." : "";
    if (run.data.gates[block]?.of === "tokens")
      return "Yellow: the token passes in every head shown; dark blue: in none. The query changes nothing here.";
    return "This block gives no weights to pairs of tokens, so the patches have no colour.";
  }

  static ranking(run, block) {
    if (!run.weighs(block)) return "Keys with the nearest first spikes";
    return run.signed ? "Keys with the largest weights, by size" : "Keys with the largest weight";
  }

  static averaged(run, block) {
    return run.weighs(block) || run.data.gates[block]?.of === "tokens"
      ? "The map averages the heads."
      : "No head is chosen.";
  }

  static strongest(run, block) {
    if (!run.weighs(block)) return "in which first spikes are nearest";
    return `which gives this key the largest weight${run.signed ? " by size" : ""}`;
  }

  /** What the page computes itself. */
  static computed({ data, byDistance }) {
    if (byDistance)
      return "distances, affinities, row exponents and weights are computed by this page from those codes.";
    if (!data.weights) return "distances are computed by this page from those codes.";
    const share = data.weights.levels.toLocaleString("en");
    return `weights were recorded in the same run and are rounded to 1/${share} of the largest of their row.`;
  }

  static from({ byDistance }) {
    return byDistance ? "Computed here from q, k and v" : "Computed here from the weights and v";
  }

  /** Blocks that rollout passes over, in words. */
  static passedOver({ data }) {
    if (!data.weights) return "";
    const blocks = Array.from({ length: data.config.depth }, (_, n) => n);
    const without = blocks.filter((n) => !data.weights.weighing.includes(n));
    const sizes = data.weights.signed ? " Of weights below zero the size counts." : "";
    if (!without.length) return sizes;
    const which = without.length === 1 ? `Block ${without[0]} counts` : `Blocks ${without.join(", ")} count`;
    return `${sizes} ${which} as if every token kept to itself.`;
  }
};
