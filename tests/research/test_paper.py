"""Every energy figure of the paper, to its printed digit or with its difference named."""

from __future__ import annotations

import pytest

from lapis.energy import estimate
from lapis.trace import Point
from research.paper import PaperFigure, Range, Solution, deployed_preset, figures, solve_base, solve_large

PRINTED = {
    "Lapis-L dense, whole model": "283.15",
    "Lapis-L dense, attention path": "100.01",
    "Lapis-L W32, power-of-two rows": "13.20",
    "Lapis-L W32, exact rows": "13.27",
    "Lapis-L W6, power-of-two rows": "3.28",
    "Lapis-L W32, attention path": "6.92",
    "Lapis-L W6, attention path": "1.96",
    "Lapis-B W32": "5.35",
    "Lapis-B W6": "1.50",
    "attention path, dense / W32": "14.5",
    "whole model, dense / W32": "21.4",
    "whole model, W32 / W6": "4.03",
    "whole model, dense / W6": "86.3",
    "Lapis-L lookups": "0.15",
    "Lapis-L divisions of exact rows": "0.07",
}
SHOWN = {figure.name: figure for figure in figures()}


def test_all_figures_are_shown_as_the_paper_prints_them() -> None:
    assert {name: figure.printed for name, figure in SHOWN.items()} == PRINTED


@pytest.mark.parametrize("name", [name for name, printed in PRINTED.items() if printed != "100.01"])
def test_ours_prints_the_papers_digits(name: str) -> None:
    assert SHOWN[name].ours_printed == PRINTED[name]
    assert not SHOWN[name].difference


def test_the_one_difference_is_named() -> None:
    figure = SHOWN["Lapis-L dense, attention path"]
    assert not figure.equal
    assert f"{figure.ours:.3f}" == "99.996"
    assert "99.996" in figure.difference
    assert "100.009" in figure.difference


def test_dense_figures_follow_the_appendix() -> None:
    layers, tokens, width = 24, 197, 1024
    u, r = layers * tokens * width**2, layers * tokens**2 * width
    ends = 196 * 768 * width + 1000 * width
    assert SHOWN["Lapis-L dense, whole model"].ours == pytest.approx(4.6e-9 * (12 * u + 2 * r + ends), rel=1e-12)
    assert SHOWN["Lapis-L dense, attention path"].ours == pytest.approx(4.6e-9 * (4 * u + 2 * r), rel=1e-12)


def test_energy_of_the_large_model_follows_the_appendix() -> None:
    """The whole W6 account, written out once more from the appendix with unlike activities."""
    layers, tokens, width, heads, mlp = 24, 197, 1024, 16, 4
    u, r, h = layers * tokens * width**2, layers * tokens**2 * width, layers * heads * tokens**2
    rho: dict[Point, float] = {
        "attention_in": 0.31,
        "q": 0.2,
        "k": 0.4,
        "v": 0.45,
        "readout": 0.5,
        "mlp_in": 0.17,
        "mlp_hidden": 0.09,
    }
    linear = 3 * 0.31 * u + 0.5 * u + mlp * 0.17 * u + mlp * 0.09 * u
    attention = 0.9 * (r + 0.35 * r) + 10 * h
    ends = 4.6 * (196 * 768 * width + 1000 * width)
    w6 = estimate(deployed_preset("lapis_large", 6), rho)
    w32 = estimate(deployed_preset("lapis_large", 32, "exact"), rho)
    assert w6.energy_mj == pytest.approx((0.1 * linear + attention + ends) / 1e9, rel=1e-12)
    assert w32.energy_mj == pytest.approx((0.9 * linear + attention + 4.6 * h + ends) / 1e9, rel=1e-12)


@pytest.mark.parametrize("solution", [solve_large(), solve_base()], ids=lambda solution: str(solution.model))
def test_solved_activities_are_shares_within_their_ranges(solution: Solution) -> None:
    for step in solution.solved:
        assert step.low < step.value < step.high, step.name
    for rates in (solution.w32, solution.w6):
        assert all(0 < rate < 1 for rate in rates.values())


def test_solved_sums_are_those_of_our_reading() -> None:
    large = {step.name: step.value for step in solve_large().solved}
    base = {step.name: step.value for step in solve_base().solved}
    assert large["a"] == pytest.approx(1.25, abs=0.002)
    assert large["rho_qkv"] == pytest.approx(0.38, abs=0.015)
    assert large["m32"] == pytest.approx(0.312, abs=0.001)
    assert base["x"] == pytest.approx(0.288, abs=0.001)
    assert base["rho_qkv"] == pytest.approx(0.33, abs=0.005)


def test_the_two_checkpoints_cannot_share_their_mlp_activity() -> None:
    """Why m is solved twice: no single value prints both 13.20 and 3.28 with the ratios 21.4 and 4.03."""
    ranges = {step.name: step for step in solve_large().solved}
    assert ranges["m6"].high < ranges["m32"].low


def test_only_the_sums_of_activities_matter() -> None:
    """3 rho_attn + rho_out and rho_mlp + rho_hid fix the energy: another split of them changes nothing."""
    solved = solve_large()
    other = dict(solved.w6)
    other["attention_in"] += 0.05
    other["readout"] -= 0.15
    other["mlp_in"] += 0.1
    other["mlp_hidden"] -= 0.1
    config = deployed_preset("lapis_large", 6)
    assert estimate(config, other).energy_mj == pytest.approx(estimate(config, solved.w6).energy_mj, rel=1e-12)


def test_a_range_holds_what_prints_the_same() -> None:
    known = Range.of("13.20")
    assert (known.low, known.high) == (13.195, 13.205)
    assert known.middle == pytest.approx(13.2)
    assert Range.of("21.4").under(42.8).low < 2 < Range.of("21.4").under(42.8).high


@pytest.mark.parametrize(("ours", "shown"), [(0.145, "0.15"), (0.144999, "0.14"), (2.0, "2.00"), (1e-9, "0.00")])
def test_figures_round_halves_up(ours: float, shown: str) -> None:
    assert PaperFigure("x", "0.15", "mJ", ours).ours_printed == shown
