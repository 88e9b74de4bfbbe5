"""`lapis bench`: how fast this machine is at it, beside torch."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from lapis import native
from lapis.bench.engine import command as engine
from lapis.cli.info import processor
from lapis.config import nearest
from lapis.errors import LapisError

if TYPE_CHECKING:
    from lapis.bench.runner import Measurement


@click.group()
def command() -> None:
    """Benchmarks: every answer is checked before it is timed, contenders take turns.

    \b
    Example:
      lapis bench kernels --size train
    """


@command.command()
@click.option("--size", "sizes", multiple=True, help="paper, train or small; repeat it. Default: paper and train.")
@click.option("--threads", multiple=True, type=click.IntRange(1), help="Thread budgets; repeat it. Default: 1 and 2.")
@click.option("--rounds", type=click.IntRange(1), default=15, show_default=True, help="Turns of every contender.")
@click.option("--step/--no-step", default=True, show_default=True, help="Include a training step of lapis_tiny.")
@click.option("--isa", help="Force an instruction set; the best one by default.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the CSV. Default: bench/results.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def kernels(
    sizes: tuple[str, ...],
    threads: tuple[int, ...],
    rounds: int,
    step: bool,
    isa: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Time the kernels beside torch: distance, gradient, fused attention, quantizer, a training step.

    Writes a CSV that carries the machine's name. A ratio is how many times longer the other takes than lapis: the
    median over rounds, with its quartiles.

    \b
    Example:
      lapis bench kernels --size paper --rounds 25 --out bench/results
    """
    try:
        import torch
    except ImportError:
        raise LapisError("the benchmark compares with torch; install it with: pip install 'lapis-snn[train]'") from None
    from lapis.bench.kernels import SIZES, tasks, thread_budget
    from lapis.bench.runner import measure, to_csv

    chosen = sizes or ("paper", "train")
    unknown = [name for name in chosen if name not in SIZES]
    if unknown:
        raise LapisError(f"unknown size {unknown[0]!r}; use {', '.join(SIZES)}")
    if not native.available():
        raise LapisError(f"there is nothing to time: the native kernels are not available ({native.describe()})")
    made: list[Measurement] = []
    with native.force(isa or native.isa()):
        facts = machine() | {"torch": torch.__version__}
        for count in threads or (1, 2):
            with thread_budget(count):
                for number, name in enumerate(chosen):
                    for task in tasks(SIZES[name], step and number == 0, count):
                        made += measure(task, count, rounds)
                        click.echo(f"timed {task.name}, {task.shape}, {count} thread(s)", err=True)
    folder = out if out is not None else Path("bench/results")
    path = folder / f"kernels-{slug(facts['machine'])}-{facts['isa']}.csv"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(to_csv(made, facts), encoding="utf-8")
    if as_json:
        click.echo(json.dumps({"facts": facts, "measurements": [asdict(m) for m in made], "written": str(path)}))
        return
    show(made, facts)
    click.echo(f"wrote {path} ({len(made)} rows)")


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def memory(as_json: bool) -> None:
    """Peak memory of attention beyond its inputs and result: written out, eager, and fused.

    Each in a process of its own, at B=8 H=12 N=197 C=64 and for one head with ever more tokens.

    \b
    Example:
      lapis bench memory
    """
    from lapis.bench.memory import GROWTH, PAPER, WAYS
    from lapis.bench.memory import measure as measure_peak

    peaks = [measure_peak(way, PAPER) for way in WAYS]
    peaks += [measure_peak(way, shape) for shape in GROWTH for way in ("eager", "fused")]
    if as_json:
        click.echo(json.dumps([asdict(peak) for peak in peaks]))
        return
    table = Table(box=None)
    for title in ("B H N C", "way", "peak MB beyond inputs and result"):
        table.add_column(title, justify="left" if title != "peak MB beyond inputs and result" else "right")
    for peak in peaks:
        table.add_row(" ".join(map(str, peak.shape)), peak.way, f"{peak.extra_bytes / 1e6:.2f}")
    Console().print(table)


@command.command()
@click.argument("model", default="lapis_tiny_cifar10")
@click.option("--rounds", type=click.IntRange(1), default=15, show_default=True, help="Turns of every contender.")
@click.option("--batch", type=click.IntRange(1), default=8, show_default=True, help="Images in one call.")
@click.option("--engine", "names", multiple=True, help="As of `lapis bench engine`; repeat it. Default: all installed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def energy(model: str, rounds: int, batch: int, names: tuple[str, ...], as_json: bool) -> None:
    """Joules an image that the processor counted (RAPL), of a packed network and of the dense one elsewhere.

    Where the machine shows no counters it says so, and gives CPU time instead. One thread; contenders take turns: every
    engine of `lapis bench engine` that is installed.

    \b
    Example:
      lapis bench energy lapis_tiny_cifar10
    """
    from lapis.bench.contenders import CONTENDERS
    from lapis.bench.joules import compare, packages
    from lapis.runtime import Session
    from lapis.train.processor import spare_matrix_unit

    unknown = [name for name in names if name not in CONTENDERS]
    if unknown:
        raise LapisError(
            f"there is no engine {unknown[0]!r}; {nearest(unknown[0], CONTENDERS)}use {', '.join(CONTENDERS)}"
        )
    spare_matrix_unit()
    session = Session(model)
    size = session.config.image_size
    pixels = np.random.default_rng(0).integers(0, 256, (batch, size, size, 3), dtype=np.uint8)
    zones, reason = packages()
    calls: dict[str, Callable[[], object]] = {"lapis": lambda: session.run(pixels)}
    with TemporaryDirectory() as folder:
        for contender in CONTENDERS.values():
            if contender.name.startswith("lapis") or contender.missing() or (names and contender.name not in names):
                continue
            # Some of them print their progress; standard output is for the answer.
            with redirect_stdout(sys.stderr):
                contender.prepare(session.config, Path(folder))
                calls[contender.label] = contender.load(session.config, Path(folder), 1, batch)
        costs = compare(calls, rounds, zones)
    rows = {
        name: {
            "joules_per_image": None if cost.joules is None else cost.joules / batch,
            "cpu_ms_per_image": 1e3 * cost.cpu_seconds / batch,
        }
        for name, cost in costs.items()
    }
    if as_json:
        click.echo(json.dumps({"model": model, "executor": session.executor, "rapl": reason or "counted", **rows}))
        return
    if reason:
        click.echo(f"no joules: {reason}; CPU time instead")
    for name, row in rows.items():
        joules = "" if row["joules_per_image"] is None else f"{1e3 * row['joules_per_image']:10.3f} mJ"
        click.echo(f"{name:<37}{joules}{row['cpu_ms_per_image']:10.3f} ms of CPU an image")


command.add_command(engine, "engine")


def machine() -> dict[str, str]:
    """What a number needs beside it to mean anything."""
    return {
        "machine": processor(),
        "cores": str(_cores()),
        "system": f"{platform.system()} {platform.machine()}",
        "isa": native.isa(),
    }


def show(measurements: list[Measurement], facts: dict[str, str]) -> None:
    """One small table a task, ours first."""
    console = Console()
    console.print(f"{facts['machine']}, {facts['isa']}, torch {facts['torch']}", highlight=False)
    for task, group in groupby(measurements, key=lambda m: f"{m.task} ({m.shape}, {m.threads} threads)"):
        made = Table(title=task, title_justify="left")
        made.add_column("contender")
        for name in ("ms", "spread", "times ours", "quartiles", "VNNI target"):
            made.add_column(name, justify="right")
        for m in group:
            quartiles = f"{m.ratio_low:.2f}..{m.ratio_high:.2f}"
            target = "" if m.target is None else f"{m.target:.2f}"
            made.add_row(m.contender, f"{m.median_ms:.3f}", f"{m.spread:.0%}", f"{m.ratio:.2f}", quartiles, target)
        console.print(made)


def slug(name: str) -> str:
    """A machine's name as part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
