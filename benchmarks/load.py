"""Another process that keeps one core busy: what `benchmarks.engine --beside-load` runs next to the engines.

`python -m benchmarks.load SHARE` is that process: it works for that share of every 10 ms, on the last core that it may
use, and ends with the process that started it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PERIOD_S = 0.01


@contextmanager
def beside_load(share: float) -> Iterator[None]:
    """Keep a core busy for `share` of the time inside the `with`."""
    words = [sys.executable, str(Path(__file__)), str(share)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()  # it has begun
            yield
        finally:
            process.terminate()


def work(share: float) -> None:
    """Work and rest in turns, for as long as the parent lives."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print("begun", flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        until = time.perf_counter() + share * PERIOD_S
        while time.perf_counter() < until:
            pass
        if share < 1:
            time.sleep((1 - share) * PERIOD_S)


if __name__ == "__main__":
    work(float(sys.argv[1]))
