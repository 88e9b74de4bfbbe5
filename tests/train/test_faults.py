"""A run under faults: killed, without disk, locked out, with a damaged state, without its partner. Each can be resumed.

`make faults` kills a run fifty times; the tests of every day a few times.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
import torch

from lapis._util.run_layout import LAST_FILE, LOCK_FILE, PREVIOUS_STATE_FILE, STATE_FILE, STEPS_FILE
from lapis.errors import EXIT_BAD_INPUT, LapisError
from lapis.train.distributed import Processes
from lapis.train.log import read_evaluations, read_steps
from lapis.train.loop import train
from lapis.train.recipe import Recipe
from lapis.train.state import load_state
from lapis.train.step import OptimizerStep

Micro = Callable[..., Recipe]
RunMicro = Callable[..., dict[str, Any]]

KILLS = int(os.environ.get("LAPIS_KILLS", "6"))
PATIENCE_SECONDS = 300
# Forty steps with a state after every second one.
SETTINGS = ("optim.epochs=10", "checkpoint.save_steps=2", "checkpoint.evaluate_epochs=2")


def record(folder: Path) -> list[dict[str, str]]:
    """The step log without its clock."""
    return [{k: v for k, v in row.items() if k not in ("images_per_s", "seconds")} for row in read_steps(folder)]


def assert_same(one: Path, other: Path) -> None:
    """The same steps, tests and network, and nothing left behind."""
    assert record(one) == record(other)
    tests = [[{k: v for k, v in row.items() if k != "seconds"} for row in read_evaluations(at)] for at in (one, other)]
    assert tests[0] == tests[1]
    assert (one / LAST_FILE).read_bytes() == (other / LAST_FILE).read_bytes()
    assert not list(other.glob(".partial-*"))
    assert not (other / LOCK_FILE).exists()


def in_child(work: Callable[[], object]) -> int:
    """The process id of a forked child that does this work and ends."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, micro: Micro, run_micro: RunMicro) -> tuple[Path, float]:
    """A run without faults, and the seconds that it took."""
    out, started = tmp_path_factory.mktemp("whole") / "run", time.monotonic()
    run_micro(micro(*SETTINGS), out)
    return out, time.monotonic() - started


def test_a_run_killed_at_random_moments_ends_bit_for_bit_the_same(
    tmp_path: Path, whole: tuple[Path, float], micro: Micro, run_micro: RunMicro
) -> None:
    generator, kills, round_ = random.Random(18), 0, 0
    out = tmp_path / "run0"
    while kills < KILLS:
        pid = in_child(partial(run_micro, micro(*SETTINGS), out, (out / STATE_FILE).exists()))
        time.sleep(generator.uniform(0, whole[1] / 4))
        os.kill(pid, signal.SIGKILL)
        if os.WIFSIGNALED(os.waitpid(pid, 0)[1]):
            kills += 1
            if (out / STATE_FILE).exists():
                load_state(out)
        else:
            # This one was finished before it could be killed; the next kills hit another run.
            assert_same(whole[0], out)
            round_ += 1
            out = tmp_path / f"run{round_}"
    run_micro(micro(*SETTINGS), out, resume=(out / STATE_FILE).exists())
    assert_same(whole[0], out)


def test_a_second_run_is_refused_while_the_first_lives(
    tmp_path: Path, whole: tuple[Path, float], micro: Micro, run_micro: RunMicro
) -> None:
    out = tmp_path / "run"
    pid = in_child(lambda: run_micro(micro(*SETTINGS), out))
    while not (out / STATE_FILE).exists():
        time.sleep(0.01)
    os.kill(pid, signal.SIGSTOP)
    for resume in (True, False):
        with pytest.raises(LapisError, match=rf"another run is at work in .*\(process {pid}\); wait"):
            run_micro(micro(*SETTINGS), out, resume=resume)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    run_micro(micro(*SETTINGS), out, resume=True)
    assert_same(whole[0], out)


def test_a_damaged_last_state_gives_way_to_the_one_before(
    tmp_path: Path, whole: tuple[Path, float], micro: Micro, run_micro: RunMicro, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    run_micro(micro(*SETTINGS), out)
    last, before = load_state(out), out / PREVIOUS_STATE_FILE
    for damaged in (b"", (out / STATE_FILE).read_bytes()[:-100], b"noise" * 1000):
        (out / STATE_FILE).unlink()
        (out / STATE_FILE).write_bytes(damaged)
        assert load_state(out)["progress"]["step"] < last["progress"]["step"]
        capfd.readouterr()
        run_micro(micro(*SETTINGS), out, resume=True)
        assert "state.pt cannot be read" in (said := capfd.readouterr().err)
        assert "continuing from the state before it, of step 38" in said
        assert_same(whole[0], out)
        # The damaged state must not have become the one before, which is needed if the next one is damaged too.
        assert before.read_bytes() != damaged
        assert load_state(out)["progress"] == {**last["progress"], "seconds": ANY, "last": ANY}


@pytest.mark.parametrize("field", ["deadlines", "progress", "generator"])
def test_a_last_state_without_a_field_gives_way_to_the_one_before(
    field: str, tmp_path: Path, micro: Micro, run_micro: RunMicro, capfd: pytest.CaptureFixture[str]
) -> None:
    run_micro(micro("checkpoint.save_steps=2"), tmp_path)
    state = torch.load(tmp_path / STATE_FILE, weights_only=True)
    (tmp_path / STATE_FILE).unlink()
    torch.save({name: value for name, value in state.items() if name != field}, tmp_path / STATE_FILE)
    assert run_micro(micro("checkpoint.save_steps=2"), tmp_path, resume=True)["step"] == 8
    assert f"it lacks {field}; continuing from the state before it" in capfd.readouterr().err


@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "folder", "pipe"])
def test_a_lock_that_is_not_our_own_file_is_refused_and_harms_nothing(
    kind: str, tmp_path: Path, micro: Micro, run_micro: RunMicro
) -> None:
    precious, out = tmp_path / "precious.txt", tmp_path / "run"
    precious.write_text("mine")
    out.mkdir()
    lock = out / LOCK_FILE
    make: dict[str, Callable[[], object]] = {
        "symbolic link": lambda: lock.symlink_to(precious),
        "hard link": lambda: lock.hardlink_to(precious),
        "folder": lock.mkdir,
        "pipe": lambda: os.mkfifo(lock),
    }
    make[kind]()
    with pytest.raises(LapisError, match="could destroy another file; remove it"):
        run_micro(micro(), out)
    assert precious.read_text() == "mine"


def test_a_folder_with_the_name_of_an_unfinished_file_blocks_nothing(
    tmp_path: Path, micro: Micro, run_micro: RunMicro
) -> None:
    (tmp_path / ".partial-x").mkdir()
    run_micro(micro("optim.epochs=0.25"), tmp_path)
    assert run_micro(micro("optim.epochs=0.25"), tmp_path, resume=True)["step"] == 1
    assert (tmp_path / ".partial-x").is_dir()


def test_a_letter_among_the_numbers_of_the_log_is_one_error(tmp_path: Path, micro: Micro, run_micro: RunMicro) -> None:
    run_micro(micro("optim.epochs=0.5"), tmp_path)
    log = tmp_path / STEPS_FILE
    lines = log.read_text().split("\n")
    log.write_text("\n".join([lines[0], lines[1].replace(",", ",x", 4), *lines[2:]]))
    with pytest.raises(LapisError, match=r"steps\.csv is damaged.*remove it"):
        run_micro(micro("optim.epochs=0.5"), tmp_path, resume=True)


def test_a_killed_process_that_reads_images_says_how_to_continue(
    tmp_path: Path, micro: Micro, run_micro: RunMicro, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*arguments: object) -> dict[str, Any]:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. Details are lost.")

    monkeypatch.setattr(OptimizerStep, "__call__", killed)
    with pytest.raises(LapisError, match=r"pid 7.*start again with --resume.*data\.workers=0"):
        run_micro(micro(), tmp_path / "run")


def test_two_damaged_states_are_one_error(tmp_path: Path, micro: Micro, run_micro: RunMicro) -> None:
    run_micro(micro("checkpoint.save_steps=2"), tmp_path)
    for name in (STATE_FILE, PREVIOUS_STATE_FILE):
        (tmp_path / name).write_bytes(b"noise")
    with pytest.raises(LapisError, match=r"cannot be read"):
        run_micro(micro("checkpoint.save_steps=2"), tmp_path, resume=True)


def command(settings: tuple[str, ...], out: Path, *options: str) -> list[str]:
    words = [word for setting in settings for word in ("--set", setting)]
    return ["train", "smoke", "--out", str(out), "--device", "cpu", "--threads", "1", "--quiet", *words, *options]


def run_command(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lapis.cli", *words], env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True,
        text=True, timeout=PATIENCE_SECONDS, check=False, **options,
    )  # fmt: skip


def test_a_full_disk_is_one_error_and_the_run_goes_on_when_there_is_room(
    tmp_path: Path, whole: tuple[Path, float], micro: Micro, run_micro: RunMicro, micro_settings: tuple[str, ...]
) -> None:
    out = tmp_path / "run"
    pid = in_child(lambda: run_micro(micro(*SETTINGS), out))
    while not (out / PREVIOUS_STATE_FILE).exists():
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    good = load_state(out)["progress"]["step"]
    limit = (out / STATE_FILE).stat().st_size // 2

    def no_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = run_command(command((*micro_settings, *SETTINGS), out, "--resume"), preexec_fn=no_room)
    assert done.returncode == EXIT_BAD_INPUT, done.stderr
    assert "cannot save the run's state" in done.stderr
    assert "is untouched; make room, then --resume" in done.stderr
    assert "Traceback" not in done.stderr
    assert load_state(out)["progress"]["step"] == good
    run_micro(micro(*SETTINGS), out, resume=True)
    assert_same(whole[0], out)


@pytest.mark.parametrize("place", ["/proc/lapis/run", "/dev/null/run"])
def test_a_folder_that_cannot_be_written_is_one_error(place: str, micro: Micro, run_micro: RunMicro) -> None:
    with pytest.raises((LapisError, OSError)) as caught:
        run_micro(micro(), Path(place))
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only folders")
def test_a_read_only_folder_is_refused_before_anything_is_trained(
    tmp_path: Path, micro: Micro, run_micro: RunMicro
) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(LapisError, match="read-only"):
            run_micro(micro(), tmp_path / "run")
    finally:
        tmp_path.chmod(0o755)


# The command, whose second process is killed after its fifth step.
PARTNER_KILLED = """
import os, signal, sys
from lapis.cli import main
from lapis.train.step import OptimizerStep

take = OptimizerStep.__call__

def step_or_die(self, parts, step, watch):
    if step == 5 and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return take(self, parts, step, watch)

OptimizerStep.__call__ = step_or_die
sys.exit(main(sys.argv[1:]))
"""


def test_a_run_whose_partner_is_killed_says_so_and_can_be_resumed(
    tmp_path: Path, micro: Micro, alone: Processes, micro_settings: tuple[str, ...]
) -> None:
    script, out, settings = tmp_path / "killed.py", tmp_path / "run", ("checkpoint.save_steps=2",)
    script.write_text(PARTNER_KILLED)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script),
         *command((*micro_settings, *settings), out)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=PATIENCE_SECONDS,
        check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "lapis: error: another process of this run is gone" in done.stderr, done.stderr[-3000:]
    assert "start all processes again with --resume" in done.stderr
    assert load_state(out)["progress"]["step"] == 4
    assert train(micro(*settings), None, out, alone, resume=True, quiet=True)["step"] == 8
