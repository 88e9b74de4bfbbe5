"""The printed tables: totals are the sums of the printed digits, and nothing is cut off."""

from __future__ import annotations

import io
import re
from decimal import Decimal

import pytest
from rich.console import Console
from rich.table import Table

from lapis import preset
from lapis.energy import CONVENTIONS, estimate, side_by_side
from lapis.report import energy_table
from lapis.trace import POINTS

CONFIG = preset("lapis_tiny").deployed()


def _text(table: Table) -> str:
    stream = io.StringIO()
    Console(file=stream, width=120, color_system=None).print(table)
    return stream.getvalue()


def _energies(line: str) -> list[str]:
    return re.findall(r"\d+\.\d{6}", line)


@pytest.mark.parametrize("name", CONVENTIONS)
def test_printed_totals_are_sums_of_printed_rows(name: str) -> None:
    made = estimate(CONFIG, dict.fromkeys(POINTS, 1 / 3), name)
    lines = _text(energy_table.operators(made)).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("attention path"))
    whole = next(line for line in lines[start:] if line.startswith("whole model"))
    sums = [Decimal(0)] * 4
    for line in lines[1:start]:
        # The columns end where their names do.
        ends = [lines[0].index(f"{name}mJ") + len(f"{name}mJ") for name in (" ", "quantized ", "skipped ", "dense ")]
        ends[0] = lines[0].index(" mJ ") + 3
        for number, end in enumerate(ends):
            word = line[:end].rsplit(" ", 1)[-1]
            sums[number] += Decimal(word) if re.fullmatch(r"\d+\.\d{6}", word) else 0
    assert [Decimal(word) for word in _energies(whole)] == sums
    ours = sums[0]
    # Rounding each row to a nanojoule moves the total by less than half a nanojoule a row.
    assert abs(float(ours) - made.energy_mj) <= len(made.rows) * 0.5e-6


def test_every_row_is_printed_with_its_kind_and_cost() -> None:
    made = estimate(CONFIG, dict.fromkeys(POINTS, 0.25))
    text = _text(energy_table.operators(made))
    assert re.search(r"qkv +0\.2500 +65\.\d{3} +int add +0\.1 +", text)
    assert re.search(r"patch embedding +28\.901 +MAC +4\.6 +", text)
    assert "rival / this" in text


def test_conventions_are_named_with_what_they_count() -> None:
    text = " ".join(_text(energy_table.conventions(side_by_side(CONFIG, dict.fromkeys(POINTS, 0.25)))).split())
    for convention in CONVENTIONS.values():
        assert convention.name in text
