"""`lapis bench engine`: the deployed engine beside what people use today, one process each, in turns."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import click
import numpy as np

from lapis import native
from lapis.bench.contenders import CONTENDERS, Contender, bench_network
from lapis.config import LapisConfig, preset
from lapis.errors import EXIT_BROKEN_PROMISE, LapisError

SHAPES = {
    "small": preset("lapis_small").deployed(),
    "tiny": preset("lapis_tiny", image_size=96, classes=10).deployed(),
}
# Sides of ViT-S images: 65 to 1,025 tokens.
GROWTH = (128, 160, 192, 224, 288, 320, 384, 448, 512)
SOAK_WARM_UP = 20
# What the interpreter itself may take in the meantime; a leak of one image in each of 1,000 predictions is 27 MB.
SOAK_ALLOWED_KB = 1024
# Under some hypervisors oneDNN finds AMX but not the shape of its tiles, and crashes; this keeps it from trying.
NO_MATRIX_UNIT = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}
AIMS = {"torch": 4.0, "openvino_int8": 1.3}


@dataclass(frozen=True)
class Row:
    """One engine at one shape, number of threads and batch; times are of one image."""

    shape: str
    engine: str
    threads: int
    batch: int
    median_ms: float
    low_ms: float
    high_ms: float
    cpu_ms: float
    images_s: float
    times_ours: float
    peak_mb: float
    load_s: float
    aim: float | None


@dataclass
class Worker:
    """A process that has loaded one engine and times a batch when asked."""

    process: subprocess.Popen[str]
    batch: int
    load_s: float
    walls: list[float]
    cpus: list[float]

    def time(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        said = self.listen()
        self.walls.append(said["wall_s"] / self.batch)
        self.cpus.append(said["cpu_s"] / self.batch)

    def finish(self) -> float:
        """Let it end and return its peak memory in MB."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        peak = float(self.listen()["peak_mb"])
        self.process.wait()
        return peak

    def listen(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise LapisError("a benchmarked engine ended before it answered")
        said: dict[str, Any] = json.loads(line)
        return said


def bench(
    shape: str, names: Sequence[str], threads: Sequence[int], batches: Sequence[int], rounds: int, log: IO[str]
) -> Iterator[Row]:
    """Prepare every engine, then time them in turns; one that cannot be had is left out with its reason."""
    config = SHAPES[shape]
    with tempfile.TemporaryDirectory(prefix="lapis-bench-") as place:
        ready = [name for name in names if _prepare(CONTENDERS[name], config, Path(place), log)]
        for count in threads:
            for batch in batches:
                yield from _compare(shape, config, ready, Path(place), count, batch, rounds, log)


def _prepare(contender: Contender, config: LapisConfig, folder: Path, log: IO[str]) -> bool:
    missing = contender.missing()
    if missing:
        print(
            f"skipped {contender.label}: {', '.join(missing)} not installed (pip install 'lapis-snn[bench]')", file=log
        )
        return False
    done = subprocess.run(_command("prepare", contender, config, folder), capture_output=True, text=True)
    if done.returncode:
        print(f"skipped {contender.label}: {_last_line(done.stderr)}", file=log)
        return False
    print(f"prepared {contender.label}", file=log, flush=True)
    return True


def _compare(
    shape: str,
    config: LapisConfig,
    names: Sequence[str],
    folder: Path,
    threads: int,
    batch: int,
    rounds: int,
    log: IO[str],
) -> Iterator[Row]:
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        labels = {name: CONTENDERS[name].label for name in names}
        for name in names:
            start = partial(_start, CONTENDERS[name], config, folder, threads, batch)
            try:
                try:
                    workers[name] = stack.enter_context(start())
                except IllegalInstructionError:
                    workers[name] = stack.enter_context(start(NO_MATRIX_UNIT))
                    labels[name] += ", no AMX"
                    print(
                        f"{CONTENDERS[name].label} crashes on this processor's matrix unit; it runs without", file=log
                    )
            except LapisError as error:
                print(f"skipped {labels[name]}: {error}", file=log)
        for _ in range(rounds):
            for name in list(workers):
                try:
                    workers[name].time()
                except (LapisError, OSError) as error:
                    print(f"dropped {labels[name]}: {error}", file=log)
                    del workers[name]
        peaks = {name: worker.finish() for name, worker in workers.items()}
    ours = workers["lapis"].walls if "lapis" in workers else None
    print(f"timed {shape}, {threads} threads, batch {batch}", file=log, flush=True)
    for name, worker in workers.items():
        low, middle, high = _quartiles(worker.walls)
        ratio = statistics.median(t / o for t, o in zip(worker.walls, ours, strict=True)) if ours else float("nan")
        yield Row(
            shape, labels[name], threads, batch, round(middle * 1e3, 3), round(low * 1e3, 3),
            round(high * 1e3, 3), round(statistics.median(worker.cpus) * 1e3, 3), round(1 / middle, 2), round(ratio, 3),
            round(peaks[name], 1), round(worker.load_s, 3), AIMS.get(name),
        )  # fmt: skip


class IllegalInstructionError(LapisError):
    """An engine used an instruction that the processor, or what it runs under, does not have."""


@contextmanager
def _start(
    contender: Contender, config: LapisConfig, folder: Path, threads: int, batch: int, limits: Mapping[str, str] = {}
) -> Iterator[Worker]:
    command = [*_command("serve", contender, config, folder), str(threads), str(batch)]
    budget = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **budget, **limits},
        ) as process,
    ):
        worker = Worker(process, batch, 0.0, [], [])
        try:
            worker.load_s = float(worker.listen()["load_s"])
        except LapisError:
            errors.seek(0)
            kind = IllegalInstructionError if process.wait() == -signal.SIGILL else LapisError
            raise kind(_last_line(errors.read())) from None
        try:
            yield worker
        finally:
            if process.poll() is None:
                process.terminate()


def _command(verb: str, contender: Contender, config: LapisConfig, folder: Path) -> list[str]:
    fields = json.dumps(config.to_dict())
    return [sys.executable, "-m", "lapis.bench.contenders", verb, contender.name, fields, str(folder)]


def stages(shape: str, quiet: bool, rounds: int) -> list[dict[str, Any]]:
    """Where one image's time goes on one thread, and what share of the multiplier's limit each stage reaches."""
    from lapis.runtime.engine import Engine, peak_rate

    config = SHAPES[shape]
    engine = Engine(bench_network(config, quiet))
    image = np.random.default_rng(0).integers(0, 256, (1, config.image_size, config.image_size, 3), dtype=np.uint8)
    engine.run(image)
    seen = [engine.profile(image) for _ in range(rounds)]
    macs = stage_macs(config)
    limit = peak_rate()
    made = []
    for stage in seen[0]:
        spent = statistics.median(profile[stage] for profile in seen)
        rate = macs.get(stage, 0) / spent
        share = round(rate / limit, 3) if limit and stage in macs else None
        made.append(
            {
                "network": "quiet" if quiet else "busy",
                "stage": stage,
                "ms": round(spent / 1e6, 3),
                "gmac_s": round(rate, 1) or None,
                "share_of_limit": share,
            }
        )
    return made


def stage_macs(config: LapisConfig) -> dict[str, int]:
    """Multiply-accumulates of one image in each linear stage."""
    one = config.depth * config.tokens * config.width
    return {
        "qkv": 3 * one * config.width,
        "proj": one * config.width,
        "fc1": one * config.hidden,
        "fc2": one * config.hidden,
    }


def growth(sides: Sequence[int], rounds: int) -> list[dict[str, Any]]:
    """Milliseconds of one ViT-S image on one thread against its tokens."""
    from lapis.deploy.synthetic import random_network
    from lapis.runtime.engine import Engine

    made = []
    for side in sides:
        config = SHAPES["small"].replace(image_size=side, depth=2)
        engine = Engine(random_network(config))
        image = np.random.default_rng(0).integers(0, 256, (1, side, side, 3), dtype=np.uint8)
        engine.run(image)
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            engine.run(image)
            times.append(time.perf_counter() - start)
        profile = engine.profile(image)
        made.append(
            {
                "tokens": config.tokens,
                "ms_a_block": round(statistics.median(times) / config.depth * 1e3, 3),
                "attention_ms_a_block": round(profile["attention"] / config.depth / 1e6, 3),
            }
        )
    return made


def soak(predictions: int, log: IO[str]) -> dict[str, Any]:
    """Many predictions of one session: every answer equal to the first, and memory that does not grow."""
    import resource

    from lapis.deploy.synthetic import random_network
    from lapis.runtime import Session

    session = Session(random_network(SHAPES["tiny"]), threads=2)
    images = np.random.default_rng(0).integers(0, 256, (4, 96, 96, 3), dtype=np.uint8)
    want = session.run(images)
    for _ in range(SOAK_WARM_UP):
        session.run(images)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wrong = 0
    for count in range(predictions):
        image = count % len(images)
        wrong += not (session.run(images[image : image + 1])[0] == want[image]).all()
        if (count + 1) % 1000 == 0:
            print(f"{count + 1} predictions", file=log, flush=True)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"predictions": predictions, "wrong": wrong, "grown_kb": grown, "constant": grown <= SOAK_ALLOWED_KB}


def plot_growth(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Time of a block against tokens, on logarithmic axes."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise LapisError("plots need matplotlib: pip install 'lapis-snn[plot]'") from None
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    tokens = [row["tokens"] for row in rows]
    for field, label in (("ms_a_block", "whole block"), ("attention_ms_a_block", "attention alone")):
        axes.loglog(tokens, [row[field] for row in rows], marker="o", label=label)
    axes.set_xlabel("tokens N")
    axes.set_ylabel("ms a block, one thread")
    axes.set_xticks(tokens, [str(n) for n in tokens], minor=False)
    axes.minorticks_off()
    axes.legend()
    figure.savefig(path, dpi=150)


def to_csv(rows: Sequence[Any], facts: dict[str, str]) -> str:
    """One line a row, each with the facts of the machine."""
    fields = [facts | (asdict(row) if isinstance(row, Row) else row) for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(fields[0]) if fields else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(fields)
    return text.getvalue()


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it ended without a word"


@click.command()
@click.option(
    "--shape", "shapes", multiple=True, help="small (ViT-S/16, 224) or tiny (96 pixels); repeat it. Default: both."
)
@click.option("--engine", "names", multiple=True, help=f"Of {', '.join(CONTENDERS)}; repeat it. Default: all.")
@click.option("--threads", multiple=True, type=click.IntRange(1, 256), help="Repeat it. Default: 1 and 2.")
@click.option("--batch", "batches", multiple=True, type=click.IntRange(1), help="Repeat it. Default: 1 and 8.")
@click.option("--rounds", default=15, show_default=True, type=click.IntRange(1), help="Turns of every engine.")
@click.option(
    "--stages", "by_stage", is_flag=True, help="Instead: where our time goes, against the multiplier's limit."
)
@click.option("--growth", "by_tokens", is_flag=True, help="Instead: how our time grows with the number of tokens.")
@click.option("--soak", "predictions", type=click.IntRange(1), help="Instead: this many predictions, memory watched.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for the CSV (and the plot). Default: bench/results."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def command(
    shapes: tuple[str, ...],
    names: tuple[str, ...],
    threads: tuple[int, ...],
    batches: tuple[int, ...],
    rounds: int,
    by_stage: bool,
    by_tokens: bool,
    predictions: int | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Time the deployed engine beside PyTorch, ONNX Runtime and OpenVINO on the dense network of the same shape.

    Every engine has a process of its own and they take turns, so that a machine that slows down slows them all. Peak
    memory is the process's own, load time is from a file to a network that can run. What is not installed is skipped
    and named: pip install 'lapis-snn[bench]'.

    \b
    Example:
      lapis bench engine --shape small --threads 1 --batch 1 --engine lapis --engine torch
    """
    from lapis.cli.bench import machine, slug

    for chosen, known in ((shapes, SHAPES), (names, CONTENDERS)):
        unknown = [word for word in chosen if word not in known]
        if unknown:
            raise LapisError(f"unknown {unknown[0]!r}; use {', '.join(known)}")
    if not native.available():
        raise LapisError(f"there is nothing to time: the native kernels are not available ({native.describe()})")
    if predictions is not None:
        _soak(predictions, as_json)
        return
    facts = machine()
    folder = out if out is not None else Path("bench/results")
    log = sys.stderr
    rows: list[Any]
    if by_stage:
        kind, rows = (
            "stages",
            [
                {"shape": s, **row}
                for s in shapes or SHAPES
                for quiet in (True, False)
                for row in stages(s, quiet, rounds)
            ],
        )
    elif by_tokens:
        kind, rows = "growth", growth(GROWTH, rounds)
    else:
        kind, rows = (
            "engine",
            [
                row
                for shape in shapes or SHAPES
                for row in bench(shape, names or tuple(CONTENDERS), threads or (1, 2), batches or (1, 8), rounds, log)
            ],
        )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kind}-{slug(facts['machine'])}-{facts['isa']}.csv"
    path.write_text(to_csv(rows, facts), encoding="utf-8")
    if by_tokens:
        plot_growth(rows, path.with_suffix(".png"))
    plain = [asdict(row) if isinstance(row, Row) else row for row in rows]
    if as_json:
        click.echo(json.dumps({"facts": facts, "rows": plain, "written": str(path)}))
        return
    _show(plain, facts)
    click.echo(f"wrote {path} ({len(rows)} rows)")


def _soak(predictions: int, as_json: bool) -> None:
    result = soak(predictions, sys.stderr)
    if as_json:
        click.echo(json.dumps(result))
    else:
        click.echo(f"{predictions} predictions, {result['wrong']} wrong, memory grew by {result['grown_kb']} KB")
    if result["wrong"] or not result["constant"]:
        raise click.exceptions.Exit(EXIT_BROKEN_PROMISE)


# What a person compares; the CSV and --json hold every field.
SHOWN = {
    "engine": "engine", "median_ms": "ms an image", "cpu_ms": "CPU ms", "times_ours": "times ours", "aim": "aim",
    "peak_mb": "peak MB", "load_s": "load s",
}  # fmt: skip
WIDE_ENOUGH = 110


def _show(rows: list[dict[str, Any]], facts: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.width = max(console.width, WIDE_ENOUGH)
    # One table for each setting that was compared, or one in all where there is no engine to compare.
    settings = dict.fromkeys((row.get("shape"), row.get("threads"), row.get("batch")) for row in rows)
    for shape, threads, batch in settings if rows and "engine" in rows[0] else [(None, None, None)]:
        mine = [
            row
            for row in rows
            if shape is None or (row["shape"], row["threads"], row["batch"]) == (shape, threads, batch)
        ]
        what = "" if shape is None else f"{shape}, {threads} thread(s), batch {batch}; "
        fields = {name: name.replace("_", " ") for name in mine[0]} if shape is None else SHOWN
        table = Table(title=f"{what}{facts['machine']}, {facts['isa']}", title_justify="left")
        for name, title in fields.items():
            table.add_column(title, justify="left" if name in ("shape", "engine", "stage", "network") else "right")
        for row in mine:
            table.add_row(*("" if row[name] is None else str(row[name]) for name in fields))
        console.print(table)
