"""What the benchmarks share: turns, medians, the machine's facts, and rows as a table, JSON or CSV.

A machine that slows down for a while slows all contenders, so they take turns, and ratios are taken within a round and
never between runs.
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from lapis import native
from lapis._util.files import check_folder, csv_text, write_text
from lapis._util.machine import processor
from lapis._util.terminal import echo
from lapis.errors import EXIT_BAD_INPUT, LapisError

ROOT = Path(__file__).resolve().parents[1]
Result = TypeVar("Result")
Name = TypeVar("Name")
Decorator = Callable[[Any], Any]


def machine() -> dict[str, str]:
    """The facts of this machine that belong to a measured number."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    system = f"{platform.system()} {platform.machine()}"
    return {"machine": processor(), "cores": str(cores), "system": system, "isa": native.isa()}


def take_turns(
    calls: Mapping[Name, Callable[[], Result]],
    rounds: int,
    dropped: Callable[[Name, Exception], None] | None = None,
) -> dict[Name, list[Result]]:
    """The results of every call in each round; a round calls each of them once, and each round begins with another.

    In one order, on a busy machine, the system would give a call that follows a short one the end of its slice always.
    If a call fails, `dropped` is called with its name, and its results are left out; without `dropped` it raises.
    """
    if rounds < 1:
        raise LapisError(f"rounds={rounds} is too few; use at least 1")
    results: dict[Name, list[Result]] = {name: [] for name in calls}
    for turn in range(rounds):
        names = list(results)
        first = turn % len(names) if names else 0
        for name in names[first:] + names[:first]:
            try:
                results[name].append(calls[name]())
            except (LapisError, OSError) as error:
                if dropped is None:
                    raise
                dropped(name, error)
                del results[name]
    return results


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The lower quartile, the median and the upper quartile."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def ratio_quartiles(theirs: Sequence[float], ours: Sequence[float]) -> tuple[float, float, float]:
    """Quartiles of their time divided by ours, round by round."""
    return quartiles([their / our for their, our in zip(theirs, ours, strict=True)])


def require_kernels() -> None:
    """Raise an error if the native library is missing."""
    if not native.available():
        raise LapisError(f"this measures the native library, which is not available here: {native.describe()}")


def deliver(kind: str, facts: Mapping[str, str], rows: Sequence[Any], as_json: bool, out: Path | None) -> None:
    """Print rows (dataclasses of one kind) as a table or as JSON, and write OUT/KIND-PROCESSOR-ISA.csv if asked."""
    if not rows:
        raise LapisError("nothing was measured: every contender was skipped, for the reasons given above")
    records = [asdict(row) for row in rows]
    written = None
    if out is not None:
        slug = re.sub(r"[^a-z0-9]+", "-", facts["machine"].lower()).strip("-") or "unknown"
        written = out / f"{kind}-{slug}-{facts['isa']}.csv"
        write_text(written, csv_text([{**facts, **record} for record in records], None))
    if as_json:
        echo(json.dumps({"facts": dict(facts), "rows": records, "written": written and str(written)}))
        return
    echo(", ".join(f"{name} {value}" for name, value in facts.items()), *_table(records))
    if written is not None:
        echo(f"wrote {written} ({written.stat().st_size} bytes)")


def _table(records: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = [[name, *(_cell(record[name]) for record in records)] for name in records[0]]
    widths = [max(map(len, column)) for column in columns]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in zip(*columns, strict=True)
    ]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) and value < 1e4 else str(value)


def report(line: str) -> None:
    """Progress, on standard error."""
    echo(line, error=True)


class Several(click.ParamType):  # type: ignore[type-arg]
    """A list of words or whole numbers, separated by commas."""

    def __init__(self, kind: Any) -> None:
        self.kind, self.name = kind, "LIST"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        words = value.split(",") if isinstance(value, str) else value
        return tuple(self.kind.convert(word, param, ctx) for word in words)


def rounds_option(default: int) -> Decorator:
    return click.option(
        "--rounds", type=click.IntRange(1), default=default, show_default=True, help="How many times each is timed."
    )


def output_options(command: Any) -> Any:
    """--json and --out; a folder that cannot be written is refused before anything is measured."""

    def check(context: click.Context, option: click.Parameter, folder: Path | None) -> Path | None:
        if folder is not None:
            check_folder(folder, "--out")
        return folder

    folder = click.Path(file_okay=False, path_type=Path)
    command = click.option("--out", type=folder, callback=check, help="Also write a CSV to this folder.")(command)
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def main(command: click.Command, words: list[str] | None = None) -> int:
    """Run a benchmark's command and return its exit code; an error is one line on standard error."""
    try:
        command.main(words, standalone_mode=False)
    except click.ClickException as error:
        error.show(sys.stderr)
        return EXIT_BAD_INPUT
    except (LapisError, OSError) as error:
        echo(f"error: {error}", error=True)
        return EXIT_BAD_INPUT
    return 0
