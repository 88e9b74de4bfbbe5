"""docs/paper.md names only functions and tests that exist."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split("|")]
    for line in (ROOT / "docs" / "paper.md").read_text().splitlines()
    if line.startswith("|") and "`tests/" in line
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_row_has_its_function_and_its_test(row: list[str]) -> None:
    _, _, function, law = row
    module, _, name = function.strip("`").rpartition(".")
    assert callable(getattr(import_module(module), name))
    path, _, test = law.strip("`").partition("::")
    assert re.search(rf"^def {test}\(", (ROOT / path).read_text(), re.MULTILINE)


def test_every_numbered_equation_of_the_operator_has_a_row() -> None:
    named = {int(number) for row in ROWS for number in re.findall(r"\d+", row[0].split("Eq.")[-1]) if "Eq." in row[0]}
    assert set(range(1, 21)) <= named
