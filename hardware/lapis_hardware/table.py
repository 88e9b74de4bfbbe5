"""Measured lanes and whole rows as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lapis_hardware.account import RowCost
from lapis_hardware.measure import Measured

# The lane to which the others are compared.
UNIT = "minimum"


def lane_lines(found: Sequence[Measured], rows: Sequence[RowCost]) -> list[str]:
    """A table of lanes, ratios to the score by minimum, and whole rows with ratios to the first."""
    return [*_lanes(found), *_rows(rows)]


def _lanes(found: Sequence[Measured]) -> Iterator[str]:
    unit = next((one for one in found if one.name == UNIT), None)
    yield f"{'lane':15}{'per':15}{'cells':>7}{'um2':>10}{'ps':>7}{'pJ timed':>10}{'settled':>9}  ratios to {UNIT}"
    for one in found:
        ratios = (
            "" if unit is None else f"  {one.timed_pj / unit.timed_pj:6.3f} {one.settled_pj / unit.settled_pj:6.3f}"
        )
        yield (
            f"{one.name:15}{one.unit:15}{one.cells:>7,}{one.area_um2:>10,.0f}{one.path_ps:>7,}{one.timed_pj:>10.3f}"
            f"{one.settled_pj:>9.3f}{ratios}"
        )


def _rows(rows: Sequence[RowCost]) -> Iterator[str]:
    if rows:
        yield f"{'one row':43}{'clocks':>7}{'um2':>12}{'nJ timed':>10}{'settled':>9}  ratios to the first"
    for one in rows:
        yield (
            f"{one.name:43}{one.clocks:>7}{one.area_um2:>12,.0f}{one.timed_pj / 1000:>10.3f}"
            f"{one.settled_pj / 1000:>9.3f}  {one.timed_pj / rows[0].timed_pj:6.2f} "
            f"{one.settled_pj / rows[0].settled_pj:6.2f}"
        )
