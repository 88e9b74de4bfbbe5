"""Time the deployed engine: a packed file of yours, or two shapes beside PyTorch, ONNX Runtime and OpenVINO.

python -m benchmarks.engine --model FILE --threads 1,2 --batch 1,8
python -m benchmarks.engine --shape small --engine lapis,torch
python -m benchmarks.engine --shape tiny --engine lapis,lapis_dot --threads 1 --batch 1
python -m benchmarks.engine --shape small --batch 1 --beside-load 0.5
python -m benchmarks.engine --limit --shape small
python -m benchmarks.engine --forms --model lapis_tiny.cifar10 --batch 1,8
"""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from statistics import fmean, median
from typing import Any

import click
import numpy as np
from PIL import Image

from benchmarks.common import (
    Several,
    deliver,
    machine,
    main,
    output_options,
    quartiles,
    ratio_quartiles,
    report,
    require_kernels,
    take_turns,
)
from benchmarks.contenders import CONTENDERS, OURS, SPARSE, SPARSE_DENSE, Workload, runner
from benchmarks.load import beside_load
from benchmarks.networks import SHAPES, quiet_network, random_images
from benchmarks.workers import BenchLog, prepare, workers
from lapis import Session, models, native
from lapis.data.packaged import packaged_images
from lapis.errors import LapisError
from lapis.preprocess import Pixels
from lapis.runtime.engine import STAGES, Engine
from lapis.trace import POINTS

# How many times longer than lapis an engine should take.
TARGETS = {"torch": 4.0, "openvino_int8": 1.3}
# Enough for a 95th percentile, and for medians of ratios.
MODEL_ROUNDS, RIVAL_ROUNDS, LIMIT_ROUNDS = 200, 15, 30
WARM_UP = 3
DECODE = (0, 1)
LAYERS = ("qkv", "proj", "fc1", "fc2")


@dataclass(frozen=True)
class ModelRow:
    """One packed file at one number of threads and one batch: milliseconds per image, warm.

    `decode` is the time from an encoded picture to the bytes that the network takes, on one thread; it is not part of
    the others. `load_s` is from the file to a session that has answered once.
    """

    model: str
    executor: str
    threads: int
    batch: int
    p50_ms: float
    p95_ms: float
    mean_ms: float
    images_per_s: float
    decode_p50_ms: float
    decode_p95_ms: float
    load_s: float
    weights_mb: float
    working_mb: float


def time_model(
    model: str, threads: Sequence[int], batches: Sequence[int], rounds: int, low_memory: bool = False
) -> list[ModelRow]:
    """Time a model on packaged pictures; all threads and batches take turns."""
    sample = packaged_images().pixels
    sessions, load_s = {}, {}
    for count in threads:
        start = time.perf_counter()
        sessions[count] = Session(model, threads=count, low_memory=low_memory)
        sessions[count].run(sample[:1])
        load_s[count] = time.perf_counter() - start
    first = next(iter(sessions.values()))
    encoded = BytesIO()
    Image.fromarray(sample[0]).save(encoded, "png")
    decoding = partial(first.read, encoded.getvalue())
    pixels = {batch: first.read(np.resize(sample, (batch, *sample.shape[1:]))) for batch in batches}
    # Key (threads, batch); no thread computes while a picture is decoded.
    calls: dict[tuple[int, int], Callable[[], Any]] = {
        (count, batch): partial(runner(sessions[count]), pixels[batch]) for count in threads for batch in batches
    }
    calls[DECODE] = decoding
    for call in calls.values():
        for _ in range(WARM_UP):
            call()
    turns = take_turns({key: partial(_milliseconds, call, key[1]) for key, call in calls.items()}, rounds)
    decode_p50, decode_p95 = _percentiles(turns.pop(DECODE))
    rows = []
    for count, batch in turns:
        p50, p95 = _percentiles(turns[count, batch])
        mean = round(fmean(turns[count, batch]), 4)
        memory = sessions[count].memory()
        rows.append(
            ModelRow(
                model=model,
                executor=sessions[count].executor,
                threads=count,
                batch=batch,
                p50_ms=p50,
                p95_ms=p95,
                mean_ms=mean,
                images_per_s=round(1e3 / p50, 1),
                decode_p50_ms=decode_p50,
                decode_p95_ms=decode_p95,
                load_s=round(load_s[count], 3),
                weights_mb=round(memory["weights"] / 1e6, 3),
                working_mb=round(memory["working"] / 1e6, 3),
            )
        )
    return rows


def _milliseconds(call: Callable[[], Any], images: int) -> float:
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start) / images


def _percentiles(values: Sequence[float]) -> tuple[float, float]:
    p50, p95 = np.percentile(values, (50, 95))
    return round(float(p50), 4), round(float(p95), 4)


@dataclass(frozen=True)
class EngineRow:
    """One engine at one shape, number of threads and batch, beside a load of `load_share` of a core.

    `times_ours` is how many times longer than lapis, None where that did not run; `times_events` is that of the sparse
    network with dense layers only, against the layers that the engine drives by events. `batch_gain` is how many times
    the images per second of batch 1. `one_thread_times` is how many times longer the same engine takes with one thread.
    `peak_mb` is the memory of the whole process, `load_s` from the file to a network that can run.
    """

    shape: str
    engine: str
    load_share: float
    threads: int
    batch: int
    ms_per_image: float
    ms_per_image_low: float
    ms_per_image_high: float
    cpu_ms_per_image: float
    times_ours: float | None
    times_events: float | None
    batch_gain: float | None
    one_thread_times: float | None
    peak_mb: float
    load_s: float
    target: float | None


def compare_engines(
    shape: str, names: Sequence[str], threads: Sequence[int], batches: Sequence[int], rounds: int, load: float,
    log: BenchLog,
) -> Iterator[EngineRow]:  # fmt: skip
    """Every engine with every number of threads and batch, all in turns."""
    config = SHAPES[shape]
    with tempfile.TemporaryDirectory(prefix="lapis-bench-") as made, ExitStack() as stack:
        folder = Path(made)
        ready = prepare(names, config, folder, log)
        running = {
            (count, batch, name): worker
            for count in threads
            for batch in batches
            for name, worker in stack.enter_context(workers(ready, Workload(config, count, batch), folder, log)).items()
        }
        with beside_load(load) if load else nullcontext():
            turns = take_turns(
                {key: worker.time for key, worker in running.items()},
                rounds,
                lambda key, error: log.skip(running[key].label, str(error)),
            )
        peaks = {key: running[key].finish() for key in turns}
    log.report(f"timed {shape}")
    walls = {key: [turn.wall_s / key[1] for turn in taken] for key, taken in turns.items()}

    def ratio(key: tuple[int, int, str], to: tuple[int, int, str]) -> float | None:
        return round(ratio_quartiles(walls[key], walls[to])[1], 3) if key in walls and to in walls else None

    for key, taken in turns.items():
        count, batch, name = key
        low, middle, high = quartiles(walls[key])
        yield EngineRow(
            shape=shape,
            engine=running[key].label,
            load_share=load,
            threads=count,
            batch=batch,
            ms_per_image=round(middle * 1e3, 3),
            ms_per_image_low=round(low * 1e3, 3),
            ms_per_image_high=round(high * 1e3, 3),
            cpu_ms_per_image=round(median(turn.cpu_s for turn in taken) / batch * 1e3, 3),
            times_ours=ratio(key, (count, batch, OURS)),
            times_events=ratio(key, (count, batch, SPARSE)) if name == SPARSE_DENSE else None,
            batch_gain=ratio((count, 1, name), key),
            one_thread_times=ratio((1, batch, name), key),
            peak_mb=round(peaks[key] / 1e6, 1),
            load_s=round(running[key].load_s, 3),
            target=TARGETS.get(name),
        )


@dataclass(frozen=True)
class LimitRow:
    """One stage of one image on one thread: processor time, its share of the image, and how near the limit it is.

    The limit is the multiplications per second of this core in the instruction of the linear layers, from registers,
    measured in the same rounds. `of_limit` is the stage's share of it; `of_limit_with_adds` is that of the limit with
    the additions that the instruction set needs besides. Above one, a layer was driven by its events.
    """

    network: str
    isa: str
    stage: str
    ms: float
    share: float
    of_limit: float | None = None
    of_limit_with_adds: float | None = None


def limits_of(shape: str, model: str | None, rounds: int) -> Iterator[LimitRow]:
    """Every stage of a packed file, or of the shape's quiet network, on each instruction set in turns."""
    made = models.load(model).packed if model else None
    config = made.config if made else SHAPES[shape]
    found, pixels = made or quiet_network(config), random_images(config, 1)
    calls: dict[tuple[str, str], Callable[[], Any]] = {}
    for isa in native.isas():
        with native.force(isa):
            if _peak(isa, 0):
                calls[isa, "stages"] = partial(Engine(found).profile, pixels)
                calls |= {(isa, name): partial(_peak, isa, adds) for adds, name in enumerate(("limit", "with adds"))}
    turns = take_turns(calls, rounds)
    width, hidden = config.width, config.hidden
    layers = {"qkv": 3 * width * width, "proj": width * width, "fc1": width * hidden, "fc2": width * hidden}
    products = {stage: config.depth * config.tokens * layers.get(stage, 0) for stage in STAGES}
    groups = {stage: (stage,) for stage in STAGES} | {
        "linear layers": tuple(layers),
        "the rest": tuple(stage for stage in STAGES if stage not in layers),
        "all": STAGES,
    }
    for isa in dict.fromkeys(isa for isa, _ in calls):
        spent = {stage: median(turn[stage] for turn in turns[isa, "stages"]) for stage in STAGES}
        limit, with_adds = (max(turns[isa, name]) for name in ("limit", "with adds"))
        for name, stages in groups.items():
            took, done = sum(spent[stage] for stage in stages), sum(products[stage] for stage in stages)
            of_limit = done / took if done and name != "all" else None
            yield LimitRow(
                model or shape, isa, name, round(took / 1e6, 3), round(took / sum(spent.values()), 3),
                of_limit and round(of_limit / limit, 3), of_limit and round(of_limit / with_adds, 3),
            )  # fmt: skip


def _peak(isa: str, adds: int) -> float:
    """Products per nanosecond at best, with or without the additions besides."""
    with native.force(isa):
        peak = native.library().lapis_engine_peak
        peak.restype = ctypes.c_double
        return float(peak(adds))


@dataclass(frozen=True)
class FormRow:
    """A trained network with every layer dense, with every layer by events, or each in the form that the engine chose.

    Processor time in milliseconds per image on one thread, as medians over rounds of different images; `gain` is how
    many times as fast as with every layer dense, round by round.
    """

    network: str
    isa: str
    batch: int
    form: str
    ms: float
    gain: float
    qkv: float
    proj: float
    fc1: float
    fc2: float


def compare_forms(model: str, batches: Sequence[int], rounds: int) -> Iterator[FormRow]:
    """The three forms on each instruction set that has them, all in turns; a record of 1 or 0 everywhere forces one."""
    network, sample = models.load(model).network, packaged_images().pixels
    with Session(model) as session:
        pixels = session.read(sample[: max(batches) * min(rounds, len(sample) // max(batches))])
    records = {
        form: dict.fromkeys(POINTS, (share,) * network.config.depth)
        for form, share in (("dense", 1.0), ("events", 0.0))
    } | {"chosen": network.activity}
    calls: dict[tuple[str, int, str], Callable[[], dict[str, int]]] = {}
    for isa in native.isas():
        with native.force(isa):
            for form, record in records.items() if _peak(isa, 0) else ():
                engine = Engine(dataclasses.replace(network, activity=record))
                calls |= {(isa, batch, form): _over(engine, pixels, batch) for batch in batches}
    turns = take_turns(calls, rounds)
    spent = {key: [sum(turn.values()) for turn in taken] for key, taken in turns.items()}
    for (isa, batch, form), taken in turns.items():
        gain = ratio_quartiles(spent[isa, batch, "dense"], spent[isa, batch, form])[1]
        ms = [median(spent[isa, batch, form])] + [median(turn[layer] for turn in taken) for layer in LAYERS]
        yield FormRow(model, isa, batch, form, round(ms[0] / batch / 1e6, 3), round(gain, 3),
                      *(round(each / batch / 1e6, 3) for each in ms[1:]))  # fmt: skip


def _over(engine: Engine, pixels: Pixels, batch: int) -> Callable[[], dict[str, int]]:
    """Every call profiles the next images; the first ones again after the last."""
    batches = itertools.cycle([pixels[at : at + batch] for at in range(0, len(pixels) - batch + 1, batch)])
    return lambda: engine.profile(next(batches))


@click.command()
@click.option("--forms", is_flag=True, help="With --model: all layers dense, all by events, and as the engine chose.")
@click.option("--limit", "limited", is_flag=True, help="Each stage beside the multiplier's limit, on one thread.")
@click.option("--model", help="Time this packed file, packaged name or run, instead of comparing engines.")
@click.option("--low-memory", is_flag=True, help="With --model: weights stay in 6 bits.")
@click.option(
    "--shape", "shapes", type=Several(click.Choice(list(SHAPES))), default=",".join(SHAPES), show_default=True,
    help="small: ViT-S/16 at 224 pixels; tiny: lapis_tiny at 96.",
)  # fmt: skip
@click.option(
    "--engine", "names", type=Several(click.Choice(list(CONTENDERS))), default=",".join(CONTENDERS),
    show_default=True, help="Engines to compare; those that are not installed are skipped and named.",
)  # fmt: skip
@click.option("--threads", type=Several(click.IntRange(1)), default="1,2", show_default=True, help="Threads.")
@click.option("--batch", "batches", type=Several(click.IntRange(1)), default="1,8", show_default=True, help="Images.")
@click.option(
    "--beside-load", "load", type=click.FloatRange(0, 1), default=0.0, metavar="SHARE",
    help="Beside a process that keeps one core busy for this share of the time, such as 0.5.",
)  # fmt: skip
@click.option(
    "--rounds", type=click.IntRange(1),
    help=f"How many times each is timed; {MODEL_ROUNDS} for a model, {RIVAL_ROUNDS} for engines by default.",
)  # fmt: skip
@output_options
def command(
    forms: bool, limited: bool, model: str | None, low_memory: bool, shapes: tuple[str, ...],
    names: tuple[str, ...], threads: tuple[int, ...], batches: tuple[int, ...], load: float, rounds: int | None,
    as_json: bool, out: Path | None,
) -> None:  # fmt: skip
    """Time the deployed engine on a packed file, or beside other engines.

    With --model: milliseconds per image (p50 and p95), warm, decoding apart. With --limit: where the time of one image
    goes, and which share of the multiplications per second that this core can do each layer reaches. With --forms: what
    silence gains, and whether the engine chose well. Without any:
    PyTorch, ONNX Runtime and OpenVINO on the dense network of the same shape, every engine in its own process, all in
    turns. The sparse network fires as the paper's figures imply, with the layers that the engine chooses and with dense
    layers only.

    \b
    Example:
      python -m benchmarks.engine --model lapis_tiny.cifar10 --threads 1,2 --batch 1,8
      python -m benchmarks.engine --shape small --threads 1 --batch 1 --engine lapis,torch
    """
    if forms:
        require_kernels()
        if model is None:
            raise LapisError("--forms times a trained network; name it, such as --model lapis_tiny.cifar10")
        deliver("forms", machine(), [*compare_forms(model, batches, rounds or LIMIT_ROUNDS)], as_json, out)
        return
    if limited:
        require_kernels()
        limits = [
            row for shape in shapes[: 1 if model else None] for row in limits_of(shape, model, rounds or LIMIT_ROUNDS)
        ]
        deliver("limit", machine(), limits, as_json, out)
        return
    if model is not None:
        with beside_load(load) if load else nullcontext():
            rows = time_model(model, threads, batches, rounds or MODEL_ROUNDS, low_memory)
        deliver("model-beside-load" if load else "model", machine(), rows, as_json, out)
        return
    require_kernels()
    log = BenchLog(report)
    found = [
        row
        for shape in shapes
        for row in compare_engines(shape, names, threads, batches, rounds or RIVAL_ROUNDS, load, log)
    ]
    deliver("engine-beside-load" if load else "engine", machine(), found, as_json, out)


if __name__ == "__main__":
    sys.exit(main(command))
