// What decided: the attention rollout, and the patches that raised or lowered each of the likeliest classes.
"use strict";

// The share of the lead of the first class below which no part of an image mattered alone.
const LITTLE = 0.25;

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
    for (const id of ["rollout", "rollout-key", "rollout-svg"]) byId(id).hidden = !data.rollout;
    if (!data.rollout) {
      byId("rollout-says").textContent =
        data.rolloutSays ??
        "This rule gives no weights to pairs of tokens, so no path from a patch to the answer can be followed. The evidence per class needs no weights.";
      return;
    }
    const patches = data.rollout.slice(1);
    const low = Math.min(...patches);
    const high = Math.max(...patches);
    const even = Lapis.evenness(patches) > Lapis.EVEN;
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
      `through the attention of all ${data.config.depth} blocks, heads averaged. ` +
      (even
        ? "This map says little: all patches count nearly alike, and the colours stretch small differences."
        : `Patches that counted all alike would have ${Lapis.percent(1 / run.N)} each.`) +
      Lapis.Rule.passedOver(run);
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
          element(
            "figcaption",
            { title: name },
            element("b", {}, name),
            element("small", {}, Charts.signed(each.score)),
          ),
          drawn,
        );
        const shares = this.spread(each).map((value) => value / most);
        Charts.map(drawn, { image: data.image, grid, label: `Evidence for ${name}` }, (n) => ({
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
    const gap = evidence.classes[0].score - (evidence.classes[1]?.score ?? 0);
    const little =
      most < LITTLE * gap
        ? ` These maps say little: no part of the image alone moves a score by more than ${Charts.number(most, 2)}, and the first class leads by ${Charts.number(gap, 2)}.`
        : "";
    byId("evidence-says").textContent = `${evidence.says} ${scored} All maps share one scale.${little}`;
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
