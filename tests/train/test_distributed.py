"""Two processes walk the path of one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lapis.errors import LapisError
from lapis.train.distributed import Processes, join
from lapis.train.log import read_evaluations, read_steps
from lapis.train.recipe import Recipe
from lapis.train.state import load_state

Micro = Callable[..., Recipe]
RunMicro = Callable[..., dict[str, Any]]

# Gradients summed in another order, fed back through eight steps of a network with rounding in it.
FLOAT_NOISE = 2e-3
PATIENCE_SECONDS = 300
# Mixing pairs images across the batch: it must not matter how the batch is dealt out.
MIXING = ("augment.mixup=0.8", "augment.cutmix=1", "augment.mix_prob=0.7", "augment.erase=0.2")


# The command, with the first process asked to stop after its fifth step: the other must hear of it.
STOPPED_AT_FIVE = """
import os, signal, sys
from lapis.cli import main
from lapis.train.log import Log

write = Log.step

def write_then_stop(log, row, batch, activity):
    write(log, row, batch, activity)
    if row["step"] == 5 and os.environ["RANK"] == "0":
        os.kill(os.getpid(), signal.SIGTERM)

Log.step = write_then_stop
sys.exit(main(sys.argv[1:]))
"""


def torchrun(script: Path, settings: tuple[str, ...], out: Path) -> subprocess.CompletedProcess[str]:
    words = [word for setting in settings for word in ("--set", setting)]
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script),
        "train", "smoke", "--out", str(out), "--device", "cpu", "--threads", "1", *words,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


def assert_same_path(one: Path, other: Path) -> None:
    ours, theirs = read_steps(one), read_steps(other)
    assert [row["step"] for row in ours] == [row["step"] for row in theirs]
    for a, b in zip(ours, theirs, strict=True):
        for name in ("loss", "ce", "lr"):
            assert float(a[name]) == pytest.approx(float(b[name]), rel=FLOAT_NOISE), (name, a["step"])
    for left, right in zip(read_evaluations(one), read_evaluations(other), strict=True):
        assert left["images"] == right["images"]
        assert left["loss"] == pytest.approx(right["loss"], rel=FLOAT_NOISE)


def test_two_processes_walk_the_path_of_one_and_hand_over_to_one(
    tmp_path: Path, micro: Micro, run_micro: RunMicro, micro_settings: tuple[str, ...]
) -> None:
    settings = (*MIXING, "optim.accumulate=2")
    run_micro(micro(*settings), tmp_path / "one")
    script = tmp_path / "stopped.py"
    script.write_text(STOPPED_AT_FIVE)
    done = torchrun(script, (*micro_settings, *settings), tmp_path / "two")
    assert done.returncode != 0, done.stderr[-3000:]
    assert load_state(tmp_path / "two")["progress"]["step"] == 5
    run_micro(micro(*settings), tmp_path / "two", resume=True)
    assert_same_path(tmp_path / "one", tmp_path / "two")


def test_one_process_needs_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    with join("cpu") as processes:
        assert processes == Processes(0, 1, torch.device("cpu"))
        assert processes.first
        assert processes.gather("x") == ["x"]
        assert processes.any(True)
        assert float(processes.mean(torch.tensor(3.0))) == 3.0


def test_a_world_without_a_meeting_place_or_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(LapisError, match="torchrun"), join("cpu"):
        pass
    with pytest.raises(LapisError, match="use auto, cpu or cuda"), join("abacus"):
        pass
