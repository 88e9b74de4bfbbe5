"""Time contenders side by side: answers first, then interleaved rounds, medians, spread and ratios.

Nothing is compared across runs: a machine that slows down slows every contender of a round alike.
"""

from __future__ import annotations

import csv
import io
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lapis.errors import LapisError

# A contender is repeated within a round until it has run this long, so that the clock does not matter.
SHORTEST_ROUND_S = 0.01


@dataclass(frozen=True)
class Contender:
    """One way to do the work. `run` is called again and again; its answer is what `Task.check` sees."""

    name: str
    run: Callable[[], Any]


@dataclass(frozen=True)
class Task:
    """One question: how many times faster is `ours` than each of `others`?

    `check` raises where the answer of ours is wrong. `targets` are the ratios to reach, by contender, and hold for the
    instruction set that they name.
    """

    name: str
    shape: str
    ours: Contender
    others: tuple[Contender, ...]
    check: Callable[[], None]
    targets: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Measurement:
    """One contender of one task. `ratio` is how many times longer it takes than ours, the median over rounds."""

    task: str
    shape: str
    threads: int
    contender: str
    median_ms: float
    spread: float
    ratio: float
    ratio_low: float
    ratio_high: float
    target: float | None


def measure(task: Task, threads: int, rounds: int) -> list[Measurement]:
    """Check the answer, then time every contender once a round, in turn."""
    if rounds < 1:
        raise LapisError(f"rounds={rounds} was asked; at least 1 is needed")
    task.check()
    contenders = (task.ours, *task.others)
    repeats = [_repeats(contender.run) for contender in contenders]
    times: list[list[float]] = [[] for _ in contenders]
    for _ in range(rounds):
        for contender, repeat, seen in zip(contenders, repeats, times, strict=True):
            seen.append(_seconds(contender.run, repeat))
    targets = dict(task.targets)
    made = []
    for contender, seen in zip(contenders, times, strict=True):
        low, middle, high = _quartiles(seen)
        ratios = _quartiles([theirs / ours for theirs, ours in zip(seen, times[0], strict=True)])
        made.append(
            Measurement(
                task=task.name,
                shape=task.shape,
                threads=threads,
                contender=contender.name,
                median_ms=round(middle * 1e3, 4),
                spread=round((high - low) / middle, 3),
                ratio=round(ratios[1], 3),
                ratio_low=round(ratios[0], 3),
                ratio_high=round(ratios[2], 3),
                target=targets.get(contender.name),
            )
        )
    return made


def to_csv(measurements: Sequence[Measurement], facts: dict[str, str]) -> str:
    """One line a measurement, each with the facts of the machine."""
    rows = [facts | asdict(m) for m in measurements]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _repeats(run: Callable[[], Any]) -> int:
    run()
    once = _seconds(run, 1)
    return max(1, int(SHORTEST_ROUND_S / max(once, 1e-9)))


def _seconds(run: Callable[[], Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high
