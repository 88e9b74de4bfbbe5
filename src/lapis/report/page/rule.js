// The panel of a rule that does not leak: its equation and the weights of a row; and the words in which the page speaks
// of any rule.
"use strict";

Lapis.Rule = class {
  constructor(page) {
    this.page = page;
    const { rule } = this.run.data;
    document.querySelector('[data-choice="axis"]').remove();
    byId("rule-title").textContent = `The rule ${rule.name}`;
    byId("equation").textContent = rule.equation;
    byId("equation").hidden = !rule.equation;
    byId("attention-says").textContent = Lapis.Rule.introduction(this.run);
    if (!this.run.byDistance) byId("attention-title").textContent = `Attention by the rule ${rule.name}`;
  }

  get run() {
    return this.page.run;
  }

  draw() {
    const { run } = this;
    const weighs = run.weighs(this.page.state.block);
    byId("membrane").hidden = !weighs;
    if (!weighs) {
      byId("row-facts").replaceChildren();
      byId("membrane-says").textContent =
        "The rule works without a weight for each pair, so there is nothing to draw for a query and a key.";
      return;
    }
    const { key, row } = this.page;
    const order = row.W.map((_, j) => j).sort((a, b) => row.W[b] - row.W[a] || a - b);
    const silent = row.W.filter((w) => w === 0).length;
    Dom.describe(byId("row-facts"), [
      ...(run.byDistance ? this.tableFacts(row) : []),
      ["Σ W", Charts.number(row.mass), "the sum of the weights of this row"],
      ["largest W", Charts.number(row.W[order[0]]), "the largest weight of this row"],
    ]);
    const place = order.indexOf(key) + 1;
    const label = `Weights of all ${run.N} keys; ${run.name(key)} has ${Charts.number(row.W[key])}, place ${place}.`;
    Charts.weights(byId("membrane"), { W: order.map((j) => row.W[j]), chosen: place - 1, label });
    byId("membrane-says").textContent =
      `The ${run.name(key)} has the weight W = ${Charts.number(row.W[key])}, place ${place} of ${run.N}.` +
      (run.byDistance ? ` Its distance D = ${row.D[key]} gives the affinity ${Charts.number(row.A[key])}.` : "") +
      (silent ? ` ${silent} keys have the weight 0.` : "") +
      (run.data.rule.normalised ? "" : " The weights of a row need not sum to one.");
  }

  tableFacts(row) {
    return [
      ["nearest D", String(Math.min(...row.D)), "least distance in the row"],
      ["log₂ Σ A", row.log2Z.toFixed(2), "the row's mass before scaling"],
      ["k", String(row.k), "round(log₂ Σ A): the row is shifted by this many bits"],
    ];
  }

  static introduction({ data, byDistance }) {
    const choose = "Choose a block, a head or a patch; the panels follow.";
    if (byDistance)
      return `A query looks at every key. A table makes a weight of the distance between their first spikes. ${choose} All of it is recomputed here from the codes of this run.`;
    if (!data.weights) return `This rule works without a weight for each pair of a query and a key. ${choose}`;
    return `A query gives every key a weight, which was recorded in this run. ${choose}`;
  }

  /** The letter of the distance of first spikes; D may be another one in the rule's equation. */
  static distance(run) {
    return run.byDistance ? "D" : "ℓ₁";
  }

  /** What a map of a block shows. */
  static looks(run, block, query) {
    return run.weighs(block) ? `where the ${run.name(query)} looks` : "no weights for pairs of tokens";
  }

  /** What the colours mean, where it must be said. */
  static colours(run, block, show) {
    if (run.byDistance) return "";
    if (show === "distance")
      return "ℓ₁ is the distance of first spikes, Σ |t(query) − t(key)|; the rule may compare otherwise.";
    return run.weighs(block) ? "" : "This block gives no weights to pairs of tokens, so the patches have no colour.";
  }

  static ranking(run, block) {
    return run.weighs(block) ? "Keys with the largest weight" : "Keys with the nearest first spikes";
  }

  static averaged(run, block) {
    return run.weighs(block) ? "The map averages the heads." : "No head is chosen.";
  }

  static strongest(run, block) {
    return run.weighs(block) ? "which gives this key the largest weight" : "in which first spikes are nearest";
  }

  /** What the page computes itself. */
  static computed({ data, byDistance }) {
    if (byDistance)
      return "distances, affinities, row exponents and weights are computed by this page from those codes.";
    if (!data.weights) return "distances are computed by this page from those codes.";
    return `weights were recorded in the same run and are rounded to 1/${data.weights.levels} of the largest of their row.`;
  }

  /** Blocks that rollout passes over, in words. */
  static passedOver({ data }) {
    const blocks = Array.from({ length: data.weights ? data.config.depth : 0 }, (_, n) => n);
    const without = blocks.filter((n) => !data.weights.weighing.includes(n));
    if (!without.length) return "";
    const which = without.length === 1 ? `Block ${without[0]} counts` : `Blocks ${without.join(", ")} count`;
    return ` ${which} as if every token kept to itself.`;
  }
};
