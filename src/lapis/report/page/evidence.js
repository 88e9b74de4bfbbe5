// What decided: the attention rollout, and the patches that raised or lowered each of the likeliest classes.
"use strict";

/** Draws the section from the numbers of the run; nothing is computed here. */
Lapis.Decision = class {
  constructor(page) {
    this.page = page;
    byId("rollout-svg").addEventListener("click", () => this.saveRollout());
    byId("evidence-svg").addEventListener("click", () => this.saveEvidence());
    byId("decision-csv").addEventListener("click", () =>
      Dom.download("what-decided.csv", "text/csv", Dom.csv(this.lines())),
    );
  }

  draw() {
    this.drawRollout();
    this.drawEvidence();
  }

  drawRollout() {
    const { run } = this.page;
    const { data, grid } = run;
    byId("rollout-svg").hidden = byId("rollout").hidden = !data.rollout;
    if (!data.rollout) {
      byId("rollout-says").textContent =
        "This rule gives no weights to pairs of tokens, so no path from a patch to the answer can be followed. The evidence per class needs no weights.";
      return;
    }
    const patches = data.rollout.slice(1);
    const low = Math.min(...patches);
    const high = Math.max(...patches);
    const best = patches.indexOf(high) + 1;
    const label = `Attention rollout. Most came from ${run.name(best)}, ${Lapis.percent(high)}.`;
    Charts.map(byId("rollout"), { image: data.image, grid, label }, (n) => ({
      fill: Charts.colour((patches[n] - low) / (high - low || 1)),
      opacity: 0.72,
      title: `${run.name(n + 1)}: ${Lapis.percent(patches[n])}`,
    }));
    Charts.ramp(byId("rollout-key"), Charts.colours(), Lapis.percent(low), Lapis.percent(high));
    byId("rollout-says").textContent =
      `How much of each patch reached ${data.decides === "patches" ? "the average of the patches" : "the class token"} ` +
      `through the attention of all ${data.config.depth} blocks, heads averaged. Most: ${run.name(best)}. ` +
      `Patches that counted all alike would have ${Lapis.percent(1 / run.N)} each.${Lapis.Rule.passedOver(run)}`;
  }

  drawEvidence() {
    const { data, grid } = this.page.run;
    const { evidence } = data;
    byId("evidence-svg").hidden = !evidence;
    if (!evidence) {
      byId("evidence").replaceChildren();
      byId("evidence-key").replaceChildren();
      byId("evidence-says").textContent =
        data.evidenceSays ??
        "The evidence per class was not computed for this page; lapis explain computes it unless it is given --no-evidence.";
      return;
    }
    const most = Math.max(...evidence.classes.flatMap((each) => each.values.flat().map(Math.abs))) || 1;
    byId("evidence").replaceChildren(
      ...evidence.classes.map((each, rank) => {
        const drawn = element("div", { className: "map" });
        drawn.setAttribute("role", "img");
        const name = data.classes[each.index];
        const figure = element(
          "figure",
          { className: rank ? "proof" : "proof best" },
          element("figcaption", {}, element("b", {}, name), ` ${Charts.signed(each.score)}`),
          drawn,
          element("p", { className: "caption" }, this.extremes(each)),
        );
        const shares = this.spread(each).map((value) => value / most);
        Charts.map(drawn, { image: data.image, grid, label: `Evidence for ${name}. ${this.extremes(each)}` }, (n) => ({
          ...Charts.twoSided(shares[n]),
          title: `${this.page.run.name(n + 1)}: ${Charts.signed(shares[n] * most)}`,
        }));
        return figure;
      }),
    );
    const ends = [-1, -0.5, 0, 0.5, 1].map((share) => {
      const { fill, opacity } = Charts.twoSided(share);
      return fill.replace(")", ` / ${opacity})`);
    });
    Charts.ramp(byId("evidence-key"), ends, `lowered ${Charts.signed(-most)}`, `${Charts.signed(most)} raised`);
    const scored = "The score beside a name is its logit less the mean of all logits.";
    byId("evidence-says").textContent = `${evidence.says} ${scored} All maps share one scale.`;
  }

  /** The value of every patch: that of its tile. */
  spread({ values }) {
    const { grid, data } = this.page.run;
    const { side } = data.evidence;
    return Array.from(
      { length: grid * grid },
      (_, n) => values[Math.floor(Math.floor(n / grid) / side)][Math.floor((n % grid) / side)],
    );
  }

  extremes(each) {
    const { run } = this.page;
    const all = this.spread(each);
    const at = (value) => run.name(all.indexOf(value) + 1).replace("patch ", "");
    const [low, high] = [Math.min(...all), Math.max(...all)];
    const says = [];
    if (high > 0) says.push(`raised most by ${at(high)} (${Charts.signed(high)})`);
    if (low < 0) says.push(`lowered most by ${at(low)} (${Charts.signed(low)})`);
    return says.join(", ") || "no patch mattered";
  }

  lines() {
    const { grid, data } = this.page.run;
    const classes = data.evidence ? data.evidence.classes : [];
    const values = classes.map((each) => this.spread(each));
    const rollout = data.rollout ? ["rollout"] : [];
    const head = ["row", "column", ...rollout, ...classes.map((each) => `${data.classes[each.index]}`)];
    return [
      head,
      ...Array.from({ length: grid * grid }, (_, n) => [
        Math.floor(n / grid),
        n % grid,
        ...rollout.map(() => data.rollout[n + 1]),
        ...values.map((each) => each[n]),
      ]),
    ];
  }

  saveRollout() {
    Dom.download("rollout.svg", "image/svg+xml", Charts.standalone(byId("rollout").firstElementChild));
  }

  saveEvidence() {
    const { data } = this.page.run;
    const drawn = [...byId("evidence").querySelectorAll("svg")];
    const names = data.evidence.classes.map((each) => `${data.classes[each.index]} ${Charts.signed(each.score)}`);
    Dom.download("evidence.svg", "image/svg+xml", Charts.beside(drawn, names));
  }
};
