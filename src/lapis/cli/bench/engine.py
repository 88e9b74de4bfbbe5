"""`lapis bench engine`: time the deployed engine and other engines."""

from __future__ import annotations

from pathlib import Path

import click

from lapis.bench.contenders import CONTENDERS
from lapis.bench.engine import compare_beside_load, compare_engines
from lapis.bench.machine import machine, thread_count
from lapis.bench.worker import BenchLog
from lapis.cli.bench.present import (
    Findings,
    deliver,
    out_option,
    report_progress,
    require_kernels,
    rounds_option,
    shapes_option,
)
from lapis.cli.options import json_option
from lapis.runtime.engine import MAX_THREADS

SHOWN = ("engine", "ms_per_image", "cpu_ms_per_image", "batch_gain", "times_ours", "target", "times_events", "peak_mb")
SHOWN_BESIDE_LOAD = ("engine", "threads", "ms_per_image", "cpu_ms_per_image", "times_ours", "one_thread_times")


@click.command()
@shapes_option()
@click.option(
    "--engine", "names", multiple=True, type=click.Choice(list(CONTENDERS)), default=tuple(CONTENDERS),
    help="Engines to compare; may be repeated. Default: all.",
)  # fmt: skip
@click.option(
    "--threads", multiple=True, type=click.IntRange(1, MAX_THREADS), default=(1, 2), show_default=True,
    help="Threads; may be repeated.",
)  # fmt: skip
@click.option(
    "--batch", "batches", multiple=True, type=click.IntRange(1), default=(1, 8), show_default=True,
    help="Images per call; may be repeated.",
)  # fmt: skip
@click.option(
    "--beside-load", type=click.FloatRange(0, 1, min_open=True), is_flag=False, flag_value=1.0, metavar="[SHARE]",
    help="Beside a process that keeps one core busy for this share of the time, 1 if no number follows.",
)  # fmt: skip
@rounds_option()
@out_option()
@json_option
def command(
    shapes: tuple[str, ...],
    names: tuple[str, ...],
    threads: tuple[int, ...],
    batches: tuple[int, ...],
    beside_load: float | None,
    rounds: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Time the deployed engine and other engines.

    The others are PyTorch, ONNX Runtime and OpenVINO, on the dense network of the same shape. Every engine runs in its
    own process, and they take turns, so that a machine that slows down slows them all. The sparse network fires as the
    paper's figures imply; it runs with the layers that the engine chooses, and with dense layers only. Engines that are
    not installed are skipped and named: pip install 'lapis-snn[bench]'. With --beside-load all engines and numbers of
    threads take turns beside another process, which shows what a second thread is worth on a busy machine.

    \b
    Example:
      lapis bench engine --shape small --threads 1 --batch 1 --engine lapis --engine torch
      lapis bench engine --shape small --batch 1 --beside-load --engine lapis --engine onnx_dynamic --engine torch
    """
    require_kernels()
    log = BenchLog(report_progress)
    if beside_load is not None:
        busy = [
            row
            for shape in shapes
            for batch in batches
            for row in compare_beside_load(shape, names, threads, batch, rounds, beside_load, log)
        ]
        title = f"beside a process that takes {beside_load:.0%} of one core"
        beside = Findings(
            "engine-beside-load", machine(), busy, SHOWN_BESIDE_LOAD,
            title=lambda row: f"{row.shape}, batch {row.batch}, {title}", extra={"skipped": log.skipped},
        )  # fmt: skip
        deliver(beside, out, as_json)
        return
    rows = [row for shape in shapes for row in compare_engines(shape, names, threads, batches, rounds, log)]
    findings = Findings(
        "engine",
        machine(),
        rows,
        SHOWN,
        title=lambda row: f"{row.shape}, {thread_count(row.threads)}, batch {row.batch}",
        extra={"skipped": log.skipped},
    )
    deliver(findings, out, as_json)
