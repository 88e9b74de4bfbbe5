"""The race of engines: rows and refusals; times themselves are not judged."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lapis.bench.contenders import CONTENDERS
from lapis.bench.engine import TARGETS, compare_beside_load, compare_engines
from lapis.bench.load import beside_load
from lapis.bench.worker import BenchLog

pytestmark = pytest.mark.usefixtures("needs_kernels")


def test_engines_take_turns_and_tell_time_and_memory() -> None:
    lines: list[str] = []
    rows = list(compare_engines("tiny", ["lapis", "torch"], [1], [2], 3, BenchLog(lines.append)))
    assert [row.engine for row in rows] == [CONTENDERS["lapis"].label, CONTENDERS["torch"].label]
    assert rows[0].times_ours == 1.0
    assert [row.target for row in rows] == [None, TARGETS["torch"]]
    for row in rows:
        assert (row.shape, row.threads, row.batch) == ("tiny", 1, 2)
        assert 0 < row.ms_per_image_low <= row.ms_per_image <= row.ms_per_image_high
        assert row.peak_mb > 1
        assert row.load_s > 0
    assert lines[-1] == "timed tiny, 1 thread, batch 2"


def test_a_batch_is_compared_with_one_image_where_both_are_timed() -> None:
    one, two = compare_engines("tiny", ["lapis"], [1], [1, 2], 2, BenchLog(lambda line: None))
    assert (one.batch, one.batch_gain) == (1, 1.0)
    assert two.batch == 2
    assert two.batch_gain is not None
    assert two.batch_gain > 0
    (alone,) = compare_engines("tiny", ["lapis"], [1], [2], 1, BenchLog(lambda line: None))
    assert alone.batch_gain is None


def test_without_our_engine_there_is_no_ratio_to_it() -> None:
    (row,) = compare_engines("tiny", ["lapis_busy"], [2], [1], 1, BenchLog(lambda line: None))
    assert row.times_ours is None
    assert row.ms_per_image > 0


def test_a_sparse_network_is_timed_by_events_and_densely() -> None:
    log = BenchLog(lambda line: None)
    by_events, dense = compare_engines("tiny", ["lapis_sparse", "lapis_sparse_dense"], [1], [1], 2, log)
    assert by_events.times_events is None
    assert dense.times_events is not None
    assert dense.times_events > 0


def test_beside_a_load_every_number_of_threads_is_compared_with_one() -> None:
    log = BenchLog(lambda line: None)
    rows = list(compare_beside_load("tiny", ["lapis", "lapis_busy"], [1, 2], 1, 2, 0.5, log))
    assert [(row.engine, row.threads) for row in rows] == [
        (CONTENDERS[name].label, threads) for threads in (1, 2) for name in ("lapis", "lapis_busy")
    ]
    for row in rows:
        assert row.load_share == 0.5
        assert row.times_ours is not None
        assert row.one_thread_times is not None
    assert [row.one_thread_times for row in rows if row.threads == 1] == [1.0, 1.0]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds children by /proc, which this system lacks")
def test_the_load_runs_inside_the_with_and_nowhere_else() -> None:
    def loads() -> int:
        listed = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "args="], capture_output=True, text=True)
        return listed.stdout.count("lapis.bench.load")

    assert loads() == 0
    with beside_load(0.2):
        assert loads() == 1
    assert loads() == 0
