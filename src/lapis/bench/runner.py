"""Time several ways to do one task: check the answer, then call all of them in turns.

A machine that slows down for a while slows all of them, so ratios are taken within a round and never between runs.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from lapis.errors import LapisError

Result = TypeVar("Result")
Name = TypeVar("Name")

# A call is repeated within a round until it has run this long, so that the clock's resolution does not matter.
SHORTEST_ROUND_S = 0.01


@dataclass(frozen=True)
class Task:
    """One comparison: how many times longer each of `calls` takes than the first, which is ours.

    `check` raises an error if our answer is wrong. `targets` are the ratios to reach, by the name of a call.
    """

    name: str
    shape: str
    calls: Mapping[str, Callable[[], Any]]
    check: Callable[[], None]
    targets: Mapping[str, float]


@dataclass(frozen=True)
class Measurement:
    """One contender of one task. `times_ours` is how many times longer it takes than ours (median over rounds).

    `spread` is the distance between the quartiles of its time, divided by the median.
    """

    task: str
    shape: str
    threads: int
    contender: str
    median_ms: float
    spread: float
    times_ours: float
    times_ours_low: float
    times_ours_high: float
    target: float | None


def measure(task: Task, threads: int, rounds: int) -> list[Measurement]:
    """Check the answer, then time every contender once per round, in turns; their warnings are not shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        task.check()
        turns = {name: partial(_seconds, call, _repeats(call)) for name, call in task.calls.items()}
        times = take_turns(turns, rounds)
    ours = next(iter(times.values()))
    return [_measurement(task, threads, name, seen, ours) for name, seen in times.items()]


def take_turns(
    calls: Mapping[Name, Callable[[], Result]],
    rounds: int,
    dropped: Callable[[Name, Exception], None] | None = None,
) -> dict[Name, list[Result]]:
    """The results of every call in each round; a round calls each of them once, in order.

    If a call fails, `dropped` is called with its name, and its results are left out; without `dropped` it raises.
    """
    if rounds < 1:
        raise LapisError(f"rounds={rounds} is too few; use at least 1")
    results: dict[Name, list[Result]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name in list(results):
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


def _measurement(task: Task, threads: int, name: str, seconds: Sequence[float], ours: Sequence[float]) -> Measurement:
    low, middle, high = quartiles(seconds)
    ratio_low, ratio, ratio_high = ratio_quartiles(seconds, ours)
    return Measurement(
        task=task.name,
        shape=task.shape,
        threads=threads,
        contender=name,
        median_ms=round(middle * 1e3, 4),
        spread=round((high - low) / middle, 3),
        times_ours=round(ratio, 3),
        times_ours_low=round(ratio_low, 3),
        times_ours_high=round(ratio_high, 3),
        target=task.targets.get(name),
    )


def _repeats(call: Callable[[], Any]) -> int:
    call()
    once = _seconds(call, 1)
    return max(1, int(SHORTEST_ROUND_S / max(once, 1e-9)))


def _seconds(call: Callable[[], Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats
