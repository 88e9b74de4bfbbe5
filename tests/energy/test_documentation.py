"""docs/energy.md says what the code computes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lapis.config import AFFINITY_BITS
from lapis.energy import CONVENTIONS, estimate, load_costs, tables
from lapis.energy.costs import CIRCUITS, KINDS
from lapis.energy.operations import Memory
from lapis.energy.paper import deployed_preset, solve_base, solve_large
from lapis.trace import POINTS, Point

TEXT = (Path(__file__).parents[2] / "docs" / "energy.md").read_text(encoding="utf-8")
CONFIG = deployed_preset("lapis_large", 6)


def _cells(name: str) -> list[str]:
    """The cells of the table row that begins with `name`."""
    line = next(line for line in TEXT.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def _activities() -> dict[Point, float]:
    """The activities of the command that the page gives."""
    given = dict(re.findall(r"--activity (\w+)=(0\.\d{4})", TEXT))
    return {point: float(given[point]) for point in POINTS}


def test_the_activities_shown_are_the_solved_ones() -> None:
    assert _activities() == {point: round(rate, 4) for point, rate in solve_large().w6.items()}


@pytest.mark.parametrize("name", CONVENTIONS)
def test_conventions_cost_what_the_page_says(name: str) -> None:
    made = estimate(CONFIG, _activities(), name)
    energies = [f"{value:.4f}" for value in (made.attention_mj, made.energy_mj, made.dense_energy_mj)]
    assert _cells(f"`{name}`")[1:] == [*energies, f"{made.ratio:.1f}x"]


def test_cost_tables_are_those_of_the_page() -> None:
    names = [name for name in tables() if load_costs(name).unit is None]
    for kind in KINDS:
        assert [float(cell) for cell in _cells(f"`{kind}`")] == [load_costs(name).pj[kind] for name in names]
    made = [estimate(CONFIG, _activities(), costs=name) for name in names]
    assert _cells("Lapis-L W6 as above, mJ") == [f"{one.energy_mj:.3f}" for one in made]
    assert _cells("less than dense at the same precision") == [f"{one.ratio:.1f}x" for one in made]


def test_entries_in_gates_are_those_of_the_page() -> None:
    gates, int8 = load_costs("45nm_gates"), load_costs("45nm_gates_int8")
    assert gates.unit is not None
    rows = [line.split(" | ") for line in TEXT.split("### In gates")[1].split("### Memory")[0].splitlines()]
    shown = {row[0].removeprefix("| "): row[2:4] for row in rows if len(row) == 5 and row[0].startswith("| `")}
    expected = {
        **{f"`{kind}`": gates.pj[kind] for kind in ("mac", "accumulate", "integer_accumulate", "mac_8x16")},
        "`mac`, int8": int8.pj["mac"],
        **{f"`{kind}`": gates.price(kind, AFFINITY_BITS) for kind in CIRCUITS},
    }
    assert shown == {name: [f"{pj / gates.unit.pj:.3g}", f"{pj:.3g}"] for name, pj in expected.items()}
    widths = [int(cell) for cell in _cells("bits of an affinity")]
    for kind in ("affinity", "weigh"):
        by_width = gates.circuits[kind].pj
        assert widths == list(by_width)
        assert _cells(f"`{kind}`, ratio") == [f"{pj / gates.unit.pj:.3g}" for pj in by_width.values()]


def test_a_whole_model_in_gates_costs_what_the_page_says() -> None:
    paper, gates, int8 = (
        estimate(CONFIG, _activities(), costs=name) for name in ("45nm", "45nm_gates", "45nm_gates_int8")
    )
    cells = _cells("Lapis-L W6 as above")
    assert cells[0] == f"{paper.energy_mj:.4f}"
    assert cells[2:4] == [f"{gates.energy_mj:.4f}", f"{gates.ratio:.1f}x, {int8.ratio:.1f}x"]
    narrow = estimate(CONFIG.replace(affinity_bits=5), _activities(), costs="45nm_gates_int8")
    assert cells[4] == f"{narrow.energy_mj:.4f}, {narrow.ratio:.1f}x"


@pytest.mark.parametrize("memory", ["once", "each"])
def test_the_memory_term_is_what_the_page_says(memory: Memory) -> None:
    made = estimate(CONFIG, _activities(), memory=memory)
    assert f"{made.energy_mj:.3f} mJ ({made.ratio:.1f}x)" in TEXT


def test_the_derivation_is_what_the_page_says() -> None:
    solved = {step.name: step for step in solve_large().solved}
    for name, digits in (("a", 3), ("rho_qkv", 3), ("m32", 4), ("m6", 4)):
        step = solved[name]
        assert f"{step.value:.{digits}f} ({step.low:.{digits}f}..{step.high:.{digits}f})" in TEXT
    mean = next(step for step in solve_base().solved if step.name == "x")
    assert f"{mean.value:.4f} ({mean.low:.4f}..{mean.high:.4f})" in TEXT
