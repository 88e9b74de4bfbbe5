"""Energy estimates as tables for a terminal. A total is the sum of the rounded numbers printed above it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from rich.table import Table

from lapis.config import LapisConfig
from lapis.energy.costs import Kind
from lapis.energy.counts import code_bits
from lapis.energy.estimate import Estimate, Rival
from lapis.energy.operations import Operation

_KIND_NAMES: dict[Kind, str] = {
    "mac": "MAC",
    "accumulate": "add",
    "integer_accumulate": "int add",
    "local_byte": "byte near",
    "global_byte": "byte far",
    "compare": "score lane",
    "affinity": "table",
    "row_exponent": "exponent",
    "weigh": "value lane",
}
_RIVALS: dict[Rival, str] = {"quantized": "quantized", "skipping": "zeros skipped", "dense": "dense"}

# Nanojoules: rounding a few hundred rows like this does not change the digits that are quoted.
_DIGITS = 6


def printed_mj(rows: Iterable[Operation]) -> Decimal:
    """The sum of the rows' energies as they are printed."""
    return sum((Decimal(f"{row.energy_mj:.{_DIGITS}f}") for row in rows), Decimal(0))


def operators(estimate: Estimate) -> Table:
    """Every operator with its count, kind, cost and energy, and that of each rival; then the sums and ratios."""
    networks = list(estimate.networks().values())
    columns = [f"{_RIVALS[rival]} mJ" for rival in estimate.rivals]
    table = _table("operator", "activity", "M ops", "kind", "pJ", "mJ", *columns, left=(0, 3))
    groups: dict[tuple[str, str], list[list[Operation]]] = {}
    for number, rows in enumerate(networks):
        for row in rows:
            groups.setdefault((row.operator, row.part), [[] for _ in networks])[number].append(row)
    for mine, *others in groups.values():
        cells = [str(printed_mj(rows)) if rows else "" for rows in others]
        for number, row in enumerate(mine):
            activity = "" if row.activity is None else f"{row.activity:.4f}"
            kind = f"int {row.operands[0]}x{row.operands[1]}" if row.kind == "product" else row.kind.replace("_", " ")
            counted = (activity, f"{row.count / 1e6:.3f}", _KIND_NAMES.get(row.kind, kind), f"{row.cost_pj:.4g}")
            table.add_row(_name(row), *counted, str(printed_mj([row])), *([] if number else cells))
        if not mine:
            first = next(rows[0] for rows in others if rows)
            table.add_row(f"{_name(first)} (rivals only)", "", "", "", "", "", *cells)
    table.add_section()
    for name, part in (("attention path", "attention"), ("whole model", None)):
        parts = [[row for row in rows if part in (None, row.part)] for rows in networks]
        sums, count = [printed_mj(rows) for rows in parts], sum(row.count for row in parts[0])
        table.add_row(name, "", f"{count / 1e6:.3f}", "", "", *map(str, sums), style="bold")
        if sums[0]:
            table.add_row("  rival / this", "", "", "", "", "", *(f"{other / sums[0]:.2f}x" for other in sums[1:]))
    return table


def rival_records(estimates: Sequence[Estimate]) -> list[dict[str, Any]]:
    """Every rival at every table of costs, the closest rival first."""
    return [
        {
            "rival": rival,
            "costs": made.costs.name,
            "node": made.costs.node,
            "mj": made.rival_mj(rival),
            "energy_mj": made.energy_mj,
            "ratio": made.against(rival),
        }
        for rival in _RIVALS
        for made in reversed(estimates)
        if rival in made.rivals
    ]


def rivals(estimates: Sequence[Estimate]) -> Table:
    """How many times less energy than each rival, with both priced by the same table."""
    config = estimates[0].config
    widths = ""
    if isinstance(config, LapisConfig):
        widths = f", W{config.weight_bits}, {code_bits(config, 'attention_in')}-bit codes"
    names = {"quantized": f"the same network, plain quantized{widths}", "skipping": "the same, zeros skipped"}
    table = _table("rival", "costs", "rival mJ", "this mJ", "rival / this", left=(0, 1))
    for found in rival_records(estimates):
        less = "" if found["ratio"] is None else f"{found['ratio']:.2f}x"
        name = names.get(found["rival"], f"dense, {found['node']}")
        table.add_row(name, found["costs"], f"{found['mj']:.4f}", f"{found['energy_mj']:.4f}", less)
    return table


def conventions(estimates: Sequence[Estimate]) -> Table:
    """The same network under each convention, and how many times less it takes than each rival."""
    against = list(estimates[0].rivals)
    columns = ["convention", "attention mJ", "whole mJ", *(f"{_RIVALS[rival]}" for rival in against), "what is counted"]
    last = len(columns) - 1
    table = _table(*columns, left=(0, last), wrapped=(last,))
    for made in estimates:
        less = ("-" if (ratio := made.against(rival)) is None else f"{ratio:.2f}x" for rival in against)
        numbers = (f"{made.attention_mj:.4f}", f"{made.energy_mj:.4f}")
        table.add_row(made.convention.name, *numbers, *less, made.convention.counted)
    return table


def _name(row: Operation) -> str:
    return f"{row.part} {row.operator}" if row.operator == "membranes" else row.operator


def _table(*columns: str, left: tuple[int, ...], wrapped: tuple[int, ...] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number in left else "right", no_wrap=number not in wrapped)
    return table
