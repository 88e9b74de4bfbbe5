"""Every energy figure of the paper and ours, with the activities computed from the paper's own figures.

    python research/paper.py [--json]

The paper prints no activities, but its rows determine some sums of them:

    attention path, W32:  0.9 (a u + r + rho r) + 10 h        = E1     a   = 3 rho_attn + rho_out
    attention path, W6:   0.1 a u + 0.9 (r + rho r) + 10 h    = E2     rho = rho_qkv
    whole model, W32:     E1 + 0.9 * 4 u m32 + ends           = E3     m   = rho_mlp + rho_hid, of each checkpoint
    whole model, W6:      E2 + 0.1 * 4 u m6 + ends            = E4

with u = L N D^2, r = L N^2 D, h = L H N^2, and ends = 4.6 (patch + head). Each row is known to half a printed digit,
and the printed ratios narrow it further: 283.15 / 13.20 would print as 21.5, so the unrounded 13.20 is above 13.2005.
The checkpoints were fine-tuned separately: the ranges of m32 and m6 do not overlap. a and rho are assumed to be shared.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from lapis.config import FLOAT_WEIGHTS, LapisConfig, preset
from lapis.energy import counts
from lapis.energy.costs import PJ_PER_MJ, Costs, load_costs
from lapis.energy.estimate import Estimate, estimate, total_mj
from lapis.errors import EXIT_CHECK_FAILED, EXIT_OK
from lapis.trace import Point

W6 = 6


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper as it is printed, and ours. If they differ, `difference` must give the reason."""

    name: str
    printed: str
    unit: str
    ours: float
    difference: str = ""

    @property
    def ours_printed(self) -> str:
        """Our figure with as many digits as the paper prints."""
        return str(Decimal(repr(self.ours)).quantize(Decimal(self.printed), rounding=ROUND_HALF_UP))

    @property
    def equal(self) -> bool:
        """Whether both print the same digits."""
        return self.ours_printed == self.printed

    def to_dict(self) -> dict[str, Any]:
        return {
            "figure": self.name,
            "paper": self.printed,
            "unit": self.unit,
            "ours": self.ours,
            "ours_printed": self.ours_printed,
            "equal": self.equal,
            "difference": self.difference,
        }


@dataclass(frozen=True)
class Solved:
    """One quantity computed from the paper's rows: `low..high` is the range that the printed digits allow."""

    name: str
    meaning: str
    formula: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Solution:
    """Activities of one model of the paper. Any split with the same sums gives the same energy; ours is an even one."""

    model: str
    solved: tuple[Solved, ...]
    w32: Mapping[Point, float]
    w6: Mapping[Point, float]


@dataclass(frozen=True)
class Range:
    """A number known to lie in low..high."""

    low: float
    high: float

    @classmethod
    def of(cls, printed: str) -> Range:
        """All numbers that print as `printed`."""
        value, half = Decimal(printed), Decimal(1).scaleb(Decimal(printed).as_tuple().exponent) / 2  # type: ignore[arg-type]
        return cls(float(value - half), float(value + half))

    def under(self, dividend: float) -> Range:
        """dividend / x for every x of the range."""
        return Range(dividend / self.high, dividend / self.low)

    def meet(self, other: Range) -> Range:
        return Range(max(self.low, other.low), min(self.high, other.high))

    def less(self, amount: float) -> Range:
        return Range(self.low - amount, self.high - amount)

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2


def deployed_preset(model: str, weight_bits: int, row_scale: str = "pow2") -> LapisConfig:
    """A model of the paper as it is deployed: spike-coded readout, rows scaled by powers of two."""
    return preset(model, weight_bits=weight_bits, row_scale=row_scale, readout="spikes")


def figures() -> list[PaperFigure]:
    """All figures, in the order of the paper."""
    large, base = solve_large(), solve_base()
    w32 = estimate(deployed_preset("lapis_large", FLOAT_WEIGHTS), large.w32)
    exact = estimate(deployed_preset("lapis_large", FLOAT_WEIGHTS, "exact"), large.w32)
    w6 = estimate(deployed_preset("lapis_large", W6), large.w6)
    base_w32 = estimate(deployed_preset("lapis_base", FLOAT_WEIGHTS), base.w32)
    base_w6 = estimate(deployed_preset("lapis_base", W6), base.w6)
    config = deployed_preset("lapis_large", FLOAT_WEIGHTS)
    pairs = config.depth * counts.pairs(config)
    return [
        PaperFigure("Lapis-L dense, whole model", "283.15", "mJ", w32.dense_energy_mj),
        PaperFigure(
            "Lapis-L dense, attention path", "100.01", "mJ", w32.rival_mj("dense", "attention"), _why_100_01(w32, pairs)
        ),
        PaperFigure("Lapis-L W32, power-of-two rows", "13.20", "mJ", w32.energy_mj),
        PaperFigure("Lapis-L W32, exact rows", "13.27", "mJ", exact.energy_mj),
        PaperFigure("Lapis-L W6, power-of-two rows", "3.28", "mJ", w6.energy_mj),
        PaperFigure("Lapis-L W32, attention path", "6.92", "mJ", w32.attention_mj),
        PaperFigure("Lapis-L W6, attention path", "1.96", "mJ", w6.attention_mj),
        PaperFigure("Lapis-B W32", "5.35", "mJ", base_w32.energy_mj),
        PaperFigure("Lapis-B W6", "1.50", "mJ", base_w6.energy_mj),
        PaperFigure("attention path, dense / W32", "14.5", "x", w32.rival_mj("dense", "attention") / w32.attention_mj),
        PaperFigure("whole model, dense / W32", "21.4", "x", w32.ratio),
        PaperFigure("whole model, W32 / W6", "4.03", "x", w32.energy_mj / w6.energy_mj),
        PaperFigure("whole model, dense / W6", "86.3", "x", w6.ratio),
        PaperFigure("Lapis-L lookups", "0.15", "mJ", _operator_mj(w32, "affinity")),
        PaperFigure("Lapis-L divisions of exact rows", "0.07", "mJ", _operator_mj(exact, "row scale")),
    ]


def solve_large() -> Solution:
    """Four rows of Lapis-L, narrowed by the four printed ratios, give four sums of activities."""
    shape, table = deployed_preset("lapis_large", FLOAT_WEIGHTS), load_costs()
    silent = estimate(shape, _even(0.0, 0.0, 0.0))
    u, r, ends = _units(shape, table)
    float_pj, integer_pj = table.pj["accumulate"], table.pj["integer_accumulate"]
    division = counts.pairs(shape) * shape.depth * table.pj["scale"] / PJ_PER_MJ

    attention_w32 = Range.of("6.92").meet(Range.of("14.5").under(silent.rival_mj("dense", "attention")))
    attention_w6 = Range.of("1.96")
    whole_w32 = (
        Range.of("13.20").meet(Range.of("21.4").under(silent.dense_energy_mj)).meet(Range.of("13.27").less(division))
    )
    e1, e2, e3 = attention_w32.middle, attention_w6.middle, whole_w32.middle
    whole_w6 = Range.of("3.28").meet(Range.of("86.3").under(silent.dense_energy_mj)).meet(Range.of("4.03").under(e3))
    e4 = whole_w6.middle

    # A unit picojoule times u is u in mJ; W32 minus W6 leaves (0.9 - 0.1) a u.
    step = (float_pj - integer_pj) * u
    lookups = _operator_mj(silent, "affinity")

    def rho_qkv(attention_mj: float, a: float) -> float:
        return ((attention_mj - lookups) / float_pj - a * u) / r - 1

    a = (e1 - e2) / step
    a_range = Range((attention_w32.low - attention_w6.high) / step, (attention_w32.high - attention_w6.low) / step)
    rho = rho_qkv(e1, a)
    # rho = (9 E2 - E1 ...) / r: highest where E2 is high and E1 low.
    rho_low = rho_qkv(attention_w32.high, a_range.high)
    rho_high = rho_qkv(attention_w32.low, a_range.low)
    mlp_w32, mlp_w6 = float_pj * shape.mlp_ratio * u, integer_pj * shape.mlp_ratio * u
    m32, m6 = (e3 - e1 - ends) / mlp_w32, (e4 - e2 - ends) / mlp_w6
    solved = (
        _row("E1", "attention path, W32, mJ", "6.92, and 99.996 / 14.5", attention_w32),
        _row("E2", "attention path, W6, mJ", "1.96", attention_w6),
        _row("E3", "whole model, W32, mJ", "13.20, and 283.15 / 21.4, and 13.27 - 0.069", whole_w32),
        _row("E4", "whole model, W6, mJ", "3.28, and 283.15 / 86.3, and E3 / 4.03", whole_w6),
        Solved("a", "3 rho_attn + rho_out", "(E1 - E2) / (0.8 u)", a, a_range.low, a_range.high),
        Solved("rho_qkv", "mean of q, k and v", "((E1 - 10 h) / 0.9 - a u) / r - 1", rho, rho_low, rho_high),
        Solved(
            "m32",
            "rho_mlp + rho_hid of the W32 checkpoint",
            "(E3 - E1 - ends) / (0.9 * 4 u)",
            m32,
            (whole_w32.low - attention_w32.high - ends) / mlp_w32,
            (whole_w32.high - attention_w32.low - ends) / mlp_w32,
        ),
        Solved(
            "m6",
            "rho_mlp + rho_hid of the W6 checkpoint",
            "(E4 - E2 - ends) / (0.1 * 4 u)",
            m6,
            (whole_w6.low - attention_w6.high - ends) / mlp_w6,
            (whole_w6.high - attention_w6.low - ends) / mlp_w6,
        ),
    )
    return Solution("lapis_large", solved, _even(a / 4, rho, m32 / 2), _even(a / 4, rho, m6 / 2))


def solve_base() -> Solution:
    """Two rows of Lapis-B give the mean activity of its linear layers and rho_qkv; they allow nothing finer."""
    shape, table = deployed_preset("lapis_base", FLOAT_WEIGHTS), load_costs()
    silent = estimate(shape, _even(0.0, 0.0, 0.0))
    u, r, ends = _units(shape, table)
    float_pj, integer_pj = table.pj["accumulate"], table.pj["integer_accumulate"]
    w32, w6 = Range.of("5.35"), Range.of("1.50")
    linear = 4 + 2 * shape.mlp_ratio
    step = (float_pj - integer_pj) * linear * u
    fixed = ends + _operator_mj(silent, "affinity")

    def rho_qkv(whole_mj: float, x: float) -> float:
        return ((whole_mj - fixed) / float_pj - linear * x * u) / r - 1

    x = (w32.middle - w6.middle) / step
    x_range = Range((w32.low - w6.high) / step, (w32.high - w6.low) / step)
    rho = rho_qkv(w32.middle, x)
    solved = (
        _row("E1", "whole model, W32, mJ", "5.35", w32),
        _row("E2", "whole model, W6, mJ", "1.50", w6),
        Solved("x", "mean of the linear layers", "(E1 - E2) / (0.8 * 12 u)", x, x_range.low, x_range.high),
        Solved(
            "rho_qkv",
            "mean of q, k and v",
            "((E1 - 10 h - ends) / 0.9 - 12 x u) / r - 1",
            rho,
            rho_qkv(w32.high, x_range.high),
            rho_qkv(w32.low, x_range.low),
        ),
    )
    activities = _even(x, rho, x)
    return Solution("lapis_base", solved, activities, activities)


def _units(shape: LapisConfig, table: Costs) -> tuple[float, float, float]:
    """u and r in 10^9 operations, so that u or r times 1 pJ is in mJ; the energy of the FP32 ends, in mJ."""
    u = shape.depth * shape.tokens * shape.width**2 / PJ_PER_MJ
    r = shape.depth * shape.tokens**2 * shape.width / PJ_PER_MJ
    ends = (counts.patch_embedding(shape) + counts.head(shape)) * table.pj["mac"] / PJ_PER_MJ
    return u, r, ends


def _even(attention: float, qkv: float, mlp: float) -> dict[Point, float]:
    return {
        "attention_in": attention,
        "q": qkv,
        "k": qkv,
        "v": qkv,
        "readout": attention,
        "mlp_in": mlp,
        "mlp_hidden": mlp,
    }


def _row(name: str, meaning: str, printed: str, known: Range) -> Solved:
    return Solved(name, meaning, f"prints as {printed}", known.middle, known.low, known.high)


def _operator_mj(result: Estimate, operator: str) -> float:
    return total_mj(row for row in result.rows if row.operator == operator)


def _why_100_01(result: Estimate, pairs: int) -> str:
    dense = result.rival_mj("dense", "attention")
    with_row_sums = dense + pairs * result.costs.pj["accumulate"] / PJ_PER_MJ
    return (
        f"the appendix's formulas, 4.6 (4u + 2r), give {dense:.3f}; the row sums, 0.9 h, "
        f"which it does not count, would make it {with_row_sums:.3f}"
    )


def main(words: list[str] | None = None) -> int:
    """Print the comparison; the exit code says whether every figure is equal or its difference explained."""
    parser = argparse.ArgumentParser(description="Every energy figure of the paper and ours.")
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON")
    as_json = parser.parse_args(words).as_json
    shown, solutions = figures(), [solve_large(), solve_base()]
    explained = all(figure.equal or figure.difference for figure in shown)
    if as_json:
        solved = [asdict(solution) for solution in solutions]
        print(json.dumps({"figures": [figure.to_dict() for figure in shown], "solutions": solved}))
        return EXIT_OK if explained else EXIT_CHECK_FAILED
    print(f"{'figure':<34} {'paper':>8} {'ours':>8} unrounded")
    for figure in shown:
        note = "" if figure.equal else f"  differs: {figure.difference}"
        print(f"{figure.name:<34} {figure.printed:>8} {figure.ours_printed:>8} {figure.ours:.5f} {figure.unit}{note}")
    for solution in solutions:
        print(f"\nActivities of {solution.model}, from the paper's rows (u = L N D^2, r = L N^2 D, h = L H N^2):")
        for step in solution.solved:
            print(f"{step.name:<8} {step.value:9.4f}  {step.low:.4f}..{step.high:.4f}  {step.meaning} = {step.formula}")
    print("\nOnly the sums a, m and x can be found; ours above split them evenly.")
    return EXIT_OK if explained else EXIT_CHECK_FAILED


if __name__ == "__main__":
    sys.exit(main())
