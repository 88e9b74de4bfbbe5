"""`lapis bench energy`: the energy that the processor counted."""

from __future__ import annotations

from pathlib import Path

import click

from lapis import models
from lapis.bench.contenders import OTHER_ENGINES
from lapis.bench.joules import compare_energy, packages
from lapis.bench.machine import machine
from lapis.bench.worker import BenchLog
from lapis.cli.bench.present import Findings, deliver, out_option, report_progress, rounds_option
from lapis.cli.completion import MODEL
from lapis.cli.options import json_option
from lapis.runtime import Session

SHOWN = ("engine", "joules_per_image", "cpu_ms_per_image")


@click.command()
@click.argument("model", default="lapis_tiny_cifar10", type=MODEL)
@click.option(
    "--engine", "names", multiple=True, type=click.Choice(OTHER_ENGINES), default=OTHER_ENGINES,
    help="Other engines; may be repeated. Default: all.",
)  # fmt: skip
@click.option("--batch", type=click.IntRange(1), default=8, show_default=True, help="Images in one call.")
@rounds_option()
@out_option()
@json_option
def command(model: str, names: tuple[str, ...], batch: int, rounds: int, out: Path | None, as_json: bool) -> None:
    """Measure the energy per image and compare with other engines.

    Joules are counted by the processor (RAPL). MODEL runs on our engine, the dense network of its shape on the others,
    one thread each, in turns. On a machine without counters, the reason is given and only CPU time is measured. Engines
    that are not installed are skipped and named.

    \b
    Example:
      lapis bench energy lapis_tiny_cifar10 --engine torch
    """
    network = models.open(model).network()
    zones, reason = packages()
    log = BenchLog(report_progress)
    rows = compare_energy(network, names, batch, rounds, zones, log)
    extra = {
        "model": model,
        "executor": Session(network).executor,
        "rapl": reason or "counted",
        "skipped": log.skipped,
    }
    shown = [name for name in SHOWN if zones or name != "joules_per_image"]
    notes = [f"no joules: {reason}"] if reason else []
    deliver(Findings("energy", machine(), rows, shown, extra=extra, notes=notes), out, as_json)
