"""Rows of a benchmark as a CSV file. The file name and every row name the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lapis._util.files import csv_text, write_text
from lapis.bench.machine import slug


def to_csv(rows: Sequence[Any], facts: Mapping[str, str]) -> str:
    """One line per row (rows are dataclasses of one kind), each with the facts of the machine."""
    return csv_text([{**facts, **asdict(row)} for row in rows], None if rows else list(facts))


def write_csv(folder: Path, kind: str, rows: Sequence[Any], facts: Mapping[str, str]) -> Path:
    """Write the rows to `folder` and return the file's path, KIND-PROCESSOR-ISA.csv."""
    path = folder / f"{kind}-{slug(facts['machine'])}-{facts['isa']}.csv"
    write_text(path, to_csv(rows, facts))
    return path
