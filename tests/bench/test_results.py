"""Every benchmark writes its rows the same way."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from lapis.bench.engine import EngineRow
from lapis.bench.growth import GrowthRow
from lapis.bench.results import to_csv, write_csv
from lapis.bench.runner import Measurement
from lapis.bench.stages import StageRow

FACTS = {"machine": "An Abacus (R)", "isa": "beads"}
RESULTS = Path(__file__).parents[2] / "bench" / "results"


@dataclass(frozen=True)
class Row:
    name: str
    ms: float | None


def test_every_row_of_the_csv_names_the_machine() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv([Row("a, b", 1.5), Row("c", None)], FACTS))))
    assert rows == [{**FACTS, "name": "a, b", "ms": "1.5"}, {**FACTS, "name": "c", "ms": ""}]


def test_a_file_has_the_machine_in_its_name_and_its_folder_is_made(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "new", "growth", [Row("a", 1.0)], FACTS)
    assert path == tmp_path / "new" / "growth-an-abacus-r-beads.csv"
    assert path.read_text() == to_csv([Row("a", 1.0)], FACTS)
    assert list(path.parent.iterdir()) == [path]


def test_no_rows_still_give_a_header() -> None:
    assert to_csv([], FACTS) == "machine,isa\n"


@pytest.mark.parametrize(
    ("kind", "row"),
    [("engine", EngineRow), ("growth", GrowthRow), ("kernels", Measurement), ("stages", StageRow)],
)
def test_kept_results_have_the_fields_of_today(kind: str, row: Any) -> None:
    kept = sorted(RESULTS.glob(f"{kind}-*.csv"))
    names = [field.name for field in fields(row)]
    assert kept
    for path in kept:
        header = path.read_text().splitlines()[0].split(",")
        assert header[-len(names) :] == names, path.name
