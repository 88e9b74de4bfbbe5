// The panel of a rule that leaks: the membrane that turns a distance into a weight.
"use strict";

Lapis.Membrane = class {
  constructor(page) {
    this.page = page;
    Dom.radios(document.querySelector('[data-choice="axis"]'), (axis) => page.set({ axis }));
  }

  get run() {
    return this.page.run;
  }

  draw() {
    const { run } = this;
    const { key, row, head, state } = this.page;
    Dom.check(document.querySelector('[data-choice="axis"]'), state.axis);
    const tau = run.tau(state.block, head);
    const pow2 = run.data.config.row_scale === "pow2";
    Dom.describe(byId("row-facts"), [
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
};
