"""The process of one engine, started by `lapis.bench.worker`.

`python -m lapis.bench.serve prepare NAME CONFIG FOLDER` makes the file that the engine loads. `... serve NAME CONFIG
FOLDER THREADS BATCH` loads it, answers every line on stdin with the time of one batch, and ends with its peak memory.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import IO, Any

from lapis.bench.contenders import CONTENDERS, Contender, Workload
from lapis.bench.processes import peak_memory_bytes
from lapis.config import LapisConfig


def serve(contender: Contender, workload: Workload, folder: Path, answers: IO[str]) -> None:
    """Load, report it, then answer every line with the seconds of one batch; the last answer is the peak memory."""
    started = time.perf_counter()
    run = contender.load(workload, folder)
    load_s = time.perf_counter() - started
    run()
    _answer(answers, {"load_s": load_s})
    for _ in sys.stdin:
        cpu, wall = time.process_time(), time.perf_counter()
        run()
        wall = time.perf_counter() - wall
        _answer(answers, {"wall_s": wall, "cpu_s": time.process_time() - cpu})
    _answer(answers, {"peak_bytes": peak_memory_bytes()})


def _answer(answers: IO[str], fields: dict[str, Any]) -> None:
    answers.write(json.dumps(fields) + "\n")
    answers.flush()


def main(words: list[str]) -> None:
    """Prepare or serve, as the module's docstring says."""
    # Engines may print anything, also from C++; only our own answers may reach the pipe.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    verb, name, fields, folder_name, *sizes = words
    contender, config, folder = CONTENDERS[name], LapisConfig.from_dict(json.loads(fields)), Path(folder_name)
    if verb == "prepare":
        contender.prepare(config, folder)
    else:
        threads, batch = map(int, sizes)
        serve(contender, Workload(config, threads, batch), folder, answers)


if __name__ == "__main__":
    main(sys.argv[1:])
