"""Two processes walk the path of one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lapis.errors import LapisError
from lapis.train.distributed import Processes, join
from lapis.train.log import Log, read_evaluations, read_steps
from lapis.train.recipe import Recipe

Micro = Callable[..., Recipe]
RunMicro = Callable[..., dict[str, Any]]

# Gradients summed in another order, fed back through eight steps of a network with rounding in it.
FLOAT_NOISE = 2e-3
PATIENCE_SECONDS = 300
# Mixing pairs images across the batch: it must not matter how the batch is dealt out.
MIXING = ("augment.mixup=0.8", "augment.cutmix=1", "augment.mix_prob=0.7", "augment.erase=0.2")


def torchrun(settings: tuple[str, ...], out: Path, *options: str) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "lapis.cli",
        "train", "smoke", "--out", str(out), "--device", "cpu", "--threads", "1", "--quiet", *words, *options,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]


def assert_same_path(one: Path, other: Path) -> None:
    ours, theirs = read_steps(one), read_steps(other)
    assert [row["step"] for row in ours] == [row["step"] for row in theirs]
    for a, b in zip(ours, theirs, strict=True):
        for name in ("loss", "ce", "lr"):
            assert float(a[name]) == pytest.approx(float(b[name]), rel=FLOAT_NOISE), (name, a["step"])
    for left, right in zip(read_evaluations(one), read_evaluations(other), strict=True):
        assert left["images"] == right["images"]
        assert left["loss"] == pytest.approx(right["loss"], rel=FLOAT_NOISE)


def test_two_processes_give_the_losses_of_one(
    tmp_path: Path, micro: Micro, run_micro: RunMicro, micro_settings: tuple[str, ...]
) -> None:
    run_micro(micro(*MIXING), tmp_path / "one")
    torchrun((*micro_settings, *MIXING, "optim.accumulate=2"), tmp_path / "two")
    assert_same_path(tmp_path / "one", tmp_path / "two")


def test_a_run_of_one_process_resumes_on_two(
    tmp_path: Path,
    micro: Micro,
    run_micro: RunMicro,
    micro_settings: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_micro(micro(), tmp_path / "whole")
    write = Log.step

    def write_and_ask_to_stop(log: Log, row: dict[str, Any]) -> None:
        write(log, row)
        if row["step"] == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Log, "step", write_and_ask_to_stop)
        summary = run_micro(micro(), tmp_path / "shared")
    assert summary["interrupted"]
    assert summary["step"] == 3
    torchrun(micro_settings, tmp_path / "shared", "--resume")
    assert_same_path(tmp_path / "whole", tmp_path / "shared")


def test_one_process_needs_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    processes = join("cpu")
    assert processes == Processes(0, 1, torch.device("cpu"))
    assert processes.first
    assert processes.gather("x") == ["x"]
    assert processes.any(True)
    assert float(processes.mean(torch.tensor(3.0))) == 3.0


def test_a_world_without_a_meeting_place_or_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(LapisError, match="torchrun"):
        join("cpu")
    with pytest.raises(LapisError, match="use auto, cpu or cuda"):
        join("abacus")
