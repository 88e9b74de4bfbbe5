"""Time the deployed engine, PyTorch, ONNX Runtime and OpenVINO in turns, each in its own process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from lapis.bench.contenders import OURS, SPARSE, SPARSE_DENSE, Workload
from lapis.bench.load import beside_load
from lapis.bench.machine import thread_count
from lapis.bench.networks import SHAPES
from lapis.bench.runner import quartiles, ratio_quartiles, take_turns
from lapis.bench.worker import BenchLog, prepare, workers

# How many times longer than lapis an engine should take.
TARGETS = {"torch": 4.0, "openvino_int8": 1.3}


@dataclass(frozen=True)
class EngineRow:
    """One engine at one shape, number of threads and batch.

    `load_s` is from the file to a network that can run, `peak_mb` is the memory of the whole process, and `times_ours`
    is None where our engine did not run. `times_events` is that of the sparse network with dense layers only: how many
    times longer it takes than with the layers that the engine drives by events. `batch_gain` is how many times the
    images per second of the same engine at batch 1, None where that was not timed.
    """

    shape: str
    engine: str
    threads: int
    batch: int
    ms_per_image: float
    ms_per_image_low: float
    ms_per_image_high: float
    cpu_ms_per_image: float
    images_per_s: float
    times_ours: float | None
    times_events: float | None
    batch_gain: float | None
    peak_mb: float
    load_s: float
    target: float | None


def compare_engines(
    shape: str, names: Sequence[str], threads: Sequence[int], batches: Sequence[int], rounds: int, log: BenchLog
) -> Iterator[EngineRow]:
    """Prepare every engine once, then time them at all batches in turns, at each number of threads."""
    config = SHAPES[shape]
    with tempfile.TemporaryDirectory(prefix="lapis-bench-") as folder:
        ready = prepare(names, config, Path(folder), log)
        for count in threads:
            loads = [Workload(config, count, batch) for batch in batches]
            yield from _compare_batches(shape, ready, loads, Path(folder), rounds, log)


@dataclass(frozen=True)
class LoadRow:
    """One engine with some threads beside a process that keeps a core busy for `load_share` of the time.

    `one_thread_times` is how many times longer the same engine takes with one thread, beside the same load.
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
    one_thread_times: float | None


def compare_beside_load(
    shape: str, names: Sequence[str], threads: Sequence[int], batch: int, rounds: int, share: float, log: BenchLog
) -> Iterator[LoadRow]:
    """Every engine with every number of threads, all in turns, beside a load that runs throughout."""
    config = SHAPES[shape]
    with tempfile.TemporaryDirectory(prefix="lapis-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        ready = prepare(names, config, folder, log)
        running = {
            (count, name): worker
            for count in threads
            for name, worker in stack.enter_context(workers(ready, Workload(config, count, batch), folder, log)).items()
        }
        stack.enter_context(beside_load(share))
        turns = take_turns(
            {key: worker.time for key, worker in running.items()},
            rounds,
            lambda key, error: log.skip(running[key].label, str(error)),
        )
        walls = {key: [turn.wall_s / batch for turn in taken] for key, taken in turns.items()}
        log.report(f"timed {shape} beside a load of {share:.0%} of a core, batch {batch}")
        for (count, name), taken in turns.items():
            low, middle, high = quartiles(walls[count, name])
            yield LoadRow(
                shape=shape,
                engine=running[count, name].label,
                load_share=share,
                threads=count,
                batch=batch,
                ms_per_image=round(middle * 1e3, 3),
                ms_per_image_low=round(low * 1e3, 3),
                ms_per_image_high=round(high * 1e3, 3),
                cpu_ms_per_image=round(median(turn.cpu_s for turn in taken) / batch * 1e3, 3),
                times_ours=_median_ratio(walls[count, name], walls.get((count, OURS))),
                one_thread_times=_ratio_to(walls.get((1, name)), walls[count, name]),
            )


def _compare_batches(
    shape: str, names: Sequence[str], workloads: Sequence[Workload], folder: Path, rounds: int, log: BenchLog
) -> Iterator[EngineRow]:
    """Workloads that differ in their batch only."""
    with ExitStack() as stack:
        running = {
            (workload.batch, name): worker
            for workload in workloads
            for name, worker in stack.enter_context(workers(names, workload, folder, log)).items()
        }
        turns = take_turns(
            {key: worker.time for key, worker in running.items()},
            rounds,
            lambda key, error: log.skip(running[key].label, str(error)),
        )
        peaks = {key: running[key].finish() for key in turns}
    threads = workloads[0].threads
    for workload in workloads:
        log.report(f"timed {shape}, {thread_count(threads)}, batch {workload.batch}")
    walls = {key: [turn.wall_s / key[0] for turn in taken] for key, taken in turns.items()}
    for (batch, name), taken in turns.items():
        own, by_events = walls[batch, name], walls.get((batch, SPARSE))
        low, middle, high = quartiles(own)
        yield EngineRow(
            shape=shape,
            engine=running[batch, name].label,
            threads=threads,
            batch=batch,
            ms_per_image=round(middle * 1e3, 3),
            ms_per_image_low=round(low * 1e3, 3),
            ms_per_image_high=round(high * 1e3, 3),
            cpu_ms_per_image=round(median(turn.cpu_s for turn in taken) / batch * 1e3, 3),
            images_per_s=round(1 / middle, 2),
            times_ours=_median_ratio(own, walls.get((batch, OURS))),
            times_events=_median_ratio(own, by_events) if name == SPARSE_DENSE else None,
            batch_gain=_ratio_to(walls.get((1, name)), own),
            peak_mb=round(peaks[batch, name] / 1e6, 1),
            load_s=round(running[batch, name].load_s, 3),
            target=TARGETS.get(name),
        )


def _ratio_to(one: Sequence[float] | None, several: Sequence[float]) -> float | None:
    return None if one is None else _median_ratio(one, several)


def _median_ratio(theirs: Sequence[float], ours: Sequence[float] | None) -> float | None:
    return None if ours is None else round(ratio_quartiles(theirs, ours)[1], 3)
