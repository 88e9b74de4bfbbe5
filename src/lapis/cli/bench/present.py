"""Options that the commands of `lapis bench` share, and the output of rows as tables, JSON or files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from lapis import native
from lapis._util.files import check_folder
from lapis._util.terminal import echo
from lapis.bench.networks import SHAPES
from lapis.bench.results import write_csv
from lapis.cli.bench.columns import COLUMNS
from lapis.cli.console import TableConsole
from lapis.cli.options import Decorator
from lapis.errors import LapisError


@dataclass(frozen=True)
class Findings:
    """The rows of one benchmark, ready to be shown: one table per title that `title` gives to rows.

    The name of the CSV starts with `kind`, `shown` are the fields in tables (the CSV and --json hold all), `extra` is
    added to --json, and `notes` are printed below the tables.
    """

    kind: str
    facts: Mapping[str, str]
    rows: Sequence[Any]
    shown: Sequence[str]
    title: Callable[[Any], str] = lambda row: ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()


def out_option(what: str = "a CSV") -> Decorator:
    """--out; a folder that cannot be written is refused before anything is measured, so that no result is lost."""
    kind = click.Path(file_okay=False, path_type=Path)
    return click.option(
        "--out",
        type=kind,
        metavar="FOLDER",
        callback=_check_folder,
        help=f"Write {what} to this folder. Default: no file.",
    )


def rounds_option(default: int = 15) -> Decorator:
    return click.option(
        "--rounds", type=click.IntRange(1), default=default, show_default=True, help="How many times each is timed."
    )


def shapes_option() -> Decorator:
    return click.option(
        "--shape", "shapes", multiple=True, type=click.Choice(list(SHAPES)), default=tuple(SHAPES), show_default=True,
        help="small: ViT-S/16 at 224 pixels; tiny: lapis_tiny at 96. May be repeated.",
    )  # fmt: skip


def require_kernels() -> None:
    """Raise an error if the native kernels are missing."""
    if not native.available():
        raise LapisError(f"this measures the native kernels, which are not available here: {native.describe()}")


def report_progress(line: str) -> None:
    """Print progress on standard error."""
    echo(line, error=True)


def deliver(findings: Findings, out: Path | None, as_json: bool, draw: Callable[[Path], None] | None = None) -> None:
    """Write the rows (and the picture that `draw` makes) if --out is given, then print them."""
    if not findings.rows:
        raise LapisError("nothing was measured: every engine was skipped, for the reasons given above")
    written = []
    if out is not None:
        written.append(write_csv(out, findings.kind, findings.rows, findings.facts))
        if draw is not None:
            written.append(written[0].with_suffix(".png"))
            draw(written[1])
    if as_json:
        record = {"facts": dict(findings.facts), "rows": [asdict(row) for row in findings.rows], **findings.extra}
        echo(json.dumps({**record, "written": [str(path) for path in written]}))
        return
    console = TableConsole()
    facts = findings.facts
    torch = f", torch {facts['torch']}" if "torch" in facts else ""
    echo(f"{facts['machine']}, {facts['isa']}{torch}")
    for title, rows in groupby(findings.rows, key=findings.title):
        console.print(_table(title, findings.shown, rows))
    meanings = [f"{COLUMNS[name].title}: {COLUMNS[name].meaning}" for name in findings.shown]
    for line in (*meanings, *findings.notes):
        echo(line)
    for path in written:
        echo(f"wrote {path} ({path.stat().st_size} bytes)")


def _table(title: str, fields: Sequence[str], rows: Iterable[Any]) -> Table:
    table = Table(title=title or None, title_justify="left")
    for name in fields:
        table.add_column(COLUMNS[name].title, justify="right" if COLUMNS[name].form else "left", no_wrap=True)
    for row in rows:
        values = {name: getattr(row, name) for name in fields}
        table.add_row(*("" if value is None else format(value, COLUMNS[name].form) for name, value in values.items()))
    return table


def _check_folder(context: click.Context, option: click.Parameter, folder: Path | None) -> Path | None:
    if folder is not None:
        check_folder(folder, "--out")
    return folder
