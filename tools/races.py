"""Run engine and session from many threads at once, in every way that a program may: for the thread sanitizer.

    make races

The sanitizer ends the process at a race. Answers are compared too, so that the same program finds a race that only
changes them. It needs no torch, whose own threads the sanitizer would report.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.synthetic import random_network
from lapis import native
from lapis._util.terminal import echo
from lapis.config import LapisConfig
from lapis.deploy import integer
from lapis.runtime import Session
from lapis.runtime.engine import Engine

CONFIG = LapisConfig(image_size=20, patch_size=4, classes=7, width=48, depth=2, heads=3).deployed()
THREADS, BATCHES = (1, 2, 3, 5), (1, 2, 5, 9)
CALLERS, CALLS = 4, 24


def main() -> int:
    network = random_network(CONFIG)
    images = np.random.default_rng(0).integers(0, 256, (max(BATCHES), 20, 20, 3), dtype=np.uint8)
    want = integer.run(network, images)
    runs = 0
    for threads in THREADS:
        engine = Engine(network, threads)
        for batch in BATCHES:
            if not (engine.run(images[:batch]) == want[:batch]).all():
                raise SystemExit(f"{threads} threads give other logits for a batch of {batch}")
            runs += 1
        engine.close()
    sessions = [Session(network, threads) for threads in (1, 2, 3)]

    def call(number: int) -> bool:
        session, batch = sessions[number % len(sessions)], BATCHES[number % len(BATCHES)]
        return bool((session.run(images[:batch]) == network.real_logits(want[:batch])).all())

    with ThreadPoolExecutor(CALLERS) as pool:
        if not all(pool.map(call, range(CALLS))):
            raise SystemExit("a session that was called from several threads gives other logits")
    echo(f"{runs} runs of teams of up to {max(THREADS)} threads, {CALLS} calls by {CALLERS} threads at once")
    echo(native.describe())
    return 0


if __name__ == "__main__":
    sys.exit(main())
