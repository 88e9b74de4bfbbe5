"""Energy estimates as tables for a terminal. A total is the sum of the rounded numbers printed above it."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from rich.table import Table

from lapis.energy.costs import Kind
from lapis.energy.estimate import Estimate, PricedOperation

_KIND_NAMES: dict[Kind, str] = {
    "mac": "MAC",
    "accumulate": "add",
    "integer_accumulate": "int add",
    "mac_8x16": "int 8x16",
    "mac_16x16": "int 16x16",
    "lookup": "lookup",
    "scale": "scale",
    "shift": "shift",
    "local_byte": "byte near",
    "global_byte": "byte far",
    "compare": "score lane",
    "affinity": "table",
    "row_sum": "row sum",
    "row_exponent": "exponent",
    "weigh": "value lane",
}

# Nanojoules: rounding a few hundred rows like this does not change the digits that are quoted.
_DIGITS = 6


def printed_mj(rows: Iterable[PricedOperation]) -> Decimal:
    """The sum of the rows' energies as they are printed."""
    return sum((Decimal(f"{row.energy_mj:.{_DIGITS}f}") for row in rows), Decimal(0))


def operators(estimate: Estimate, per_block: bool = False) -> Table:
    """Every operator with its count, kind, cost and energy, and that of the dense network; then the sums and ratios."""
    ours = list(estimate.block_rows) if per_block else estimate.rows
    dense = list(estimate.dense_block_rows) if per_block else estimate.dense_rows
    table = _table("operator", "activity", "M ops", "kind", "pJ", "mJ", "dense mJ", left=(0, 3))
    dense_left: dict[tuple[str, str, int | None], list[PricedOperation]] = {}
    for row in dense:
        dense_left.setdefault((row.operator, row.part, row.block), []).append(row)
    for row in ours:
        dense_rows = dense_left.pop((row.operator, row.part, row.block), [])
        table.add_row(
            _name(row),
            "" if row.activity is None else f"{row.activity:.4f}",
            f"{row.count / 1e6:.3f}",
            _KIND_NAMES[row.kind],
            f"{row.cost_pj:.4g}",
            str(printed_mj([row])),
            str(printed_mj(dense_rows)) if dense_rows else "",
        )
    for rows in dense_left.values():
        table.add_row(f"{_name(rows[0])} (dense only)", "", "", "", "", "", str(printed_mj(rows)))
    table.add_section()
    for name, part in (("attention path", "attention"), ("whole model", None)):
        ours_mj = printed_mj(row for row in ours if part in (None, row.part))
        dense_mj = printed_mj(row for row in dense if part in (None, row.part))
        operations = sum(row.count for row in ours if part in (None, row.part)) / 1e6
        table.add_row(name, "", f"{operations:.3f}", "", "", str(ours_mj), str(dense_mj), style="bold")
        if ours_mj:
            table.add_row("  times less", "", "", "", "", "", f"{dense_mj / ours_mj:.1f}x")
    return table


def conventions(estimates: Iterable[Estimate]) -> Table:
    """The same network under each convention."""
    table = _table(
        "convention", "attention mJ", "whole mJ", "dense mJ", "less", "what is counted", left=(0, 5), wrapped=(5,)
    )
    for estimate in estimates:
        table.add_row(
            estimate.convention.name,
            f"{estimate.attention_mj:.4f}",
            f"{estimate.energy_mj:.4f}",
            f"{estimate.dense_energy_mj:.4f}",
            f"{estimate.ratio:.1f}x",
            estimate.convention.counted,
        )
    return table


def _name(row: PricedOperation) -> str:
    where = "" if row.block is None else f"{row.block:>2} "
    return f"{where}{row.part} {row.operator}" if row.operator == "membranes" else f"{where}{row.operator}"


def _table(*columns: str, left: tuple[int, ...], wrapped: tuple[int, ...] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number in left else "right", no_wrap=number not in wrapped)
    return table
