"""Engines run in processes of their own, and what goes wrong there is told in a line."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.common import ROOT, take_turns
from benchmarks.contenders import CONTENDERS, OTHER_ENGINES, Workload
from benchmarks.networks import SHAPES
from benchmarks.workers import BenchLog, IllegalInstructionError, Worker, prepare, workers
from lapis.errors import LapisError

# An engine that prints as it likes, in Python and below it.
LOUD = """
import os
from benchmarks import contenders, workers

def load(workload, folder):
    print("loud in Python", flush=True)
    os.write(1, b"loud in C\\n")
    return lambda images: print("loud in a run", flush=True)

contenders.CONTENDERS["loud"] = contenders.Contender("Loud", (), contenders._prepare_nothing, load)
workers.main(["serve", "loud", CONFIG, "/nowhere", "1", "2"])
"""


@contextmanager
def _worker(code: str) -> Iterator[Worker]:
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=errors, text=True, cwd=ROOT
        ) as process,
    ):
        yield Worker("test", process, errors)


def test_what_an_engine_prints_does_not_reach_the_answers() -> None:
    config = repr(json.dumps(SHAPES["tiny"].to_dict()))
    with _worker(LOUD.replace("CONFIG", config)) as worker:
        assert worker.listen()["load_s"] >= 0
        turn = worker.time()
        assert turn.wall_s > 0
        assert turn.cpu_s >= 0
        assert worker.finish() > 1_000_000
        worker.errors.seek(0)
        heard = worker.errors.read()
    assert all(f"loud in {where}" in heard for where in ("Python", "C", "a run"))


def test_an_engine_that_ends_gives_the_last_line_of_its_stderr() -> None:
    with _worker("import sys; sys.exit('a warning\\nthe reason')") as worker:
        with pytest.raises(LapisError, match=r"^the reason$") as caught:
            worker.listen()
        assert not isinstance(caught.value, IllegalInstructionError)


def test_an_illegal_instruction_is_told_apart() -> None:
    with (
        _worker("import os, signal; os.kill(os.getpid(), signal.SIGILL)") as worker,
        pytest.raises(IllegalInstructionError, match="exit code -4"),
    ):
        worker.listen()


def test_an_engine_that_dies_between_turns_costs_only_itself(tmp_path: Path) -> None:
    log = BenchLog(lambda line: None)
    names = prepare(["lapis", "lapis_sparse"], SHAPES["tiny"], tmp_path, log)
    with workers(names, Workload(SHAPES["tiny"], 1, 1), tmp_path, log) as running:
        running["lapis"].process.kill()
        running["lapis"].process.wait()
        turns = take_turns(
            {name: worker.time for name, worker in running.items()}, 2, lambda name, error: log.skip(name, str(error))
        )
    assert list(turns) == ["lapis_sparse"]
    assert log.skipped == {"lapis": "it ended with exit code -9"}


def test_what_cannot_run_is_skipped_with_its_reason_said_once(tmp_path: Path) -> None:
    lines: list[str] = []
    log = BenchLog(lines.append)
    # Nothing was prepared, so there is no file to load.
    for _ in range(2):
        with workers(["lapis"], Workload(SHAPES["tiny"], 1, 1), tmp_path, log) as running:
            assert running == {}
    label = CONTENDERS["lapis"].label
    assert list(log.skipped) == [label]
    assert str(tmp_path) in log.skipped[label]
    assert lines == [f"skipped {label}: {log.skipped[label]}"]


def test_engines_that_are_not_installed_are_named_with_what_they_lack(tmp_path: Path) -> None:
    absent = [name for name in OTHER_ENGINES if CONTENDERS[name].missing()]
    if not absent:
        pytest.skip("every engine is installed")
    log = BenchLog(lambda line: None)
    assert prepare(absent, SHAPES["tiny"], tmp_path, log) == []
    for name in absent:
        reason = log.skipped[CONTENDERS[name].label]
        assert all(module in reason for module in CONTENDERS[name].missing())
        assert "pip install" in reason


def test_every_contender_lacks_only_what_it_names() -> None:
    for contender in CONTENDERS.values():
        assert set(contender.missing()) <= set(contender.modules)
    assert CONTENDERS["lapis"].missing() == ()
