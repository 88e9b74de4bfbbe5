"""A run learns, keeps its record, and survives being stopped and killed."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from lapis import models
from lapis._util.run_layout import STATE_FILE, STEPS_FILE
from lapis.data.images import set_aside
from lapis.errors import EXIT_INTERRUPTED, LapisError
from lapis.train.distributed import Processes
from lapis.train.log import read_evaluations, read_steps
from lapis.train.loop import Run, train
from lapis.train.recipe import Recipe
from lapis.train.state import load_state

Micro = Callable[..., Recipe]
RunMicro = Callable[..., dict[str, Any]]

# Long enough for a slow machine to import torch and take a few steps; no test waits for it in vain.
PATIENCE_SECONDS = 240


def record(folder: Path) -> list[dict[str, str]]:
    """The step log without its clock."""
    return [{k: v for k, v in row.items() if k not in ("images_per_s", "seconds")} for row in read_steps(folder)]


def scores(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in read_evaluations(folder)]


def start(recipe_settings: tuple[str, ...], out: Path, *options: str) -> subprocess.Popen[bytes]:
    settings = [word for setting in recipe_settings for word in ("--set", setting)]
    words = ["train", "smoke", "--out", str(out), "--threads", "1", "--quiet", *settings, *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-m", "lapis.cli", *words], env=environment, stdout=subprocess.DEVNULL)


def signal_at(process: subprocess.Popen[bytes], folder: Path, rows: int, number: int) -> int:
    """Send a signal once the log has so many rows; returns the exit code."""
    end = time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < end:
        if len(read_steps(folder)) >= rows:
            process.send_signal(number)
            break
        time.sleep(0.005)
    return process.wait(PATIENCE_SECONDS)


def test_a_killed_run_resumes_bit_for_bit(
    tmp_path: Path, micro: Micro, run_micro: RunMicro, micro_settings: tuple[str, ...]
) -> None:
    # Long enough that the signals land inside the run, with states between the log's rows.
    settings = ("optim.epochs=20", "checkpoint.save_steps=3", "checkpoint.evaluate_epochs=5")
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run_micro(micro(*settings), whole)
    assert signal_at(start((*micro_settings, *settings), broken), broken, 8, signal.SIGKILL) == -signal.SIGKILL
    killed_at = len(record(broken))
    assert 8 <= killed_at < 80
    code = signal_at(start((*micro_settings, *settings), broken, "--resume"), broken, killed_at + 8, signal.SIGTERM)
    assert code == EXIT_INTERRUPTED
    stopped_at = load_state(broken)["progress"]["step"]
    assert killed_at < stopped_at < 80
    assert not list(broken.glob(".partial-*"))
    run_micro(micro(*settings), broken, resume=True)
    assert record(broken) == record(whole)
    assert scores(broken) == scores(whole)
    assert (broken / "last.safetensors").read_bytes() == (whole / "last.safetensors").read_bytes()
    assert (broken / "best.safetensors").read_bytes() == (whole / "best.safetensors").read_bytes()


def test_a_run_learns_its_images_and_leaves_a_full_record(tmp_path: Path, micro: Micro, run_micro: RunMicro) -> None:
    summary = run_micro(micro("optim.epochs=30", "checkpoint.evaluate_epochs=10"), tmp_path)
    rows = read_steps(tmp_path)
    assert [int(row["step"]) for row in rows] == list(range(1, 121))
    first, last = (np.mean([float(row["loss"]) for row in part]) for part in (rows[:8], rows[-8:]))
    assert last < 0.8 * first
    assert [row["step"] for row in read_evaluations(tmp_path)] == [40, 80, 120]
    for name in ("best.safetensors", "last.safetensors", "curves.png", "summary.json", "recipe.json", "activity.json"):
        assert (tmp_path / name).stat().st_size > 0
    assert list((tmp_path / "tensorboard").iterdir())
    assert summary == json.loads((tmp_path / "summary.json").read_text())
    assert summary["images"] == 24
    assert set(summary["activity"]) == {"attention_in", "q", "k", "v", "mlp_in", "mlp_hidden"}
    assert summary["energy"]["energy_mj"] < summary["energy"]["dense_energy_mj"]
    opened = models.load(tmp_path / "last.safetensors")
    assert opened.metadata["recipe"] == "smoke"
    assert opened.class_names[3] == "cat"
    assert opened.preprocess.size == opened.torch().config.image_size


def test_a_run_depends_on_its_seed(tmp_path: Path, micro: Micro, run_micro: RunMicro) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run_micro(micro("optim.epochs=0.5", f"seed={seed}"), tmp_path / name)
    assert record(tmp_path / "a") == record(tmp_path / "b")
    assert record(tmp_path / "a") != record(tmp_path / "c")


def test_accumulated_parts_give_the_step_of_a_whole_batch(tmp_path: Path, micro: Micro, run_micro: RunMicro) -> None:
    run_micro(micro(), tmp_path / "whole")
    run_micro(micro("optim.accumulate=4"), tmp_path / "parts")
    for one, other in zip(read_steps(tmp_path / "whole"), read_steps(tmp_path / "parts"), strict=True):
        # Sums in another order, fed back through eight steps.
        assert float(one["loss"]) == pytest.approx(float(other["loss"]), rel=2e-3)


def test_distillation_runs_from_a_teacher_that_a_run_left(tmp_path: Path, micro: Micro, run_micro: RunMicro) -> None:
    run_micro(micro("model.relation=dot", "model.quantize=false"), tmp_path / "teacher")
    teacher = f"distill.teacher={tmp_path / 'teacher'}"
    blocks = ("distill.student_blocks=0,1", "distill.teacher_blocks=0,1", f"start={tmp_path / 'teacher'}")
    run_micro(micro(teacher, *blocks), tmp_path / "student")
    for row in read_steps(tmp_path / "student"):
        parts = [float(row[name]) for name in ("ce", "logit", "feature")]
        assert min(parts) > 0
        assert float(row["loss"]) == pytest.approx(0.5 * sum(parts), rel=1e-5)


def test_mixed_precision_trains_and_every_augmentation_is_on(tmp_path: Path, micro: Micro, run_micro: RunMicro) -> None:
    mixing = (
        "augment.mixup=0.8",
        "augment.cutmix=1",
        "augment.erase=0.3",
        "augment.operations=2",
        "augment.smoothing=0.1",
    )
    summary = run_micro(micro("optim.precision=bf16", "optim.epochs=1", *mixing), tmp_path)
    assert summary["step"] == 4
    assert all(np.isfinite(float(row["loss"])) for row in read_steps(tmp_path))


def test_the_smoke_recipe_tests_on_images_that_it_did_not_see(micro: Micro, alone: Processes, tmp_path: Path) -> None:
    run = Run(micro("data.limit=0", "data.test_limit=0"), None, tmp_path, alone, quiet=True)
    seen = {run.train_images[index].tobytes() for index in range(len(run.train_images))}
    assert len(seen) == len(run.train_images) == 320
    assert not any(run.evaluation_images[index].tobytes() in seen for index in range(len(run.evaluation_images)))


@pytest.mark.parametrize("seed", [0, 7])
def test_a_run_is_evaluated_on_training_images_that_no_seed_chooses(
    micro: Micro, alone: Processes, run_micro: RunMicro, tmp_path: Path, seed: int
) -> None:
    everything = ("data.limit=0", "data.test_limit=0")
    whole = Run(micro(*everything), None, tmp_path, alone, quiet=True).train_images
    recipe = micro(*everything, "data.validate=40", f"seed={seed}", "optim.epochs=0.25")
    run = Run(recipe, None, tmp_path, alone, quiet=True)
    both = (run.train_images, run.evaluation_images)
    parts = [[images[index].tobytes() for index in range(len(images))] for images in both]
    assert [len(part) for part in parts] == [280, 40]
    assert sorted(parts[0] + parts[1]) == sorted(whole[index].tobytes() for index in range(len(whole)))
    assert parts[1][0] == set_aside(whole, 40)[1][0].tobytes()
    summary = run_micro(recipe, tmp_path / "run")
    assert (summary["images"], summary["evaluated"]) == (40, "validation")
    assert run_micro(recipe, tmp_path / "run", resume=True) == summary


def test_a_folder_with_a_run_is_not_overwritten(tmp_path: Path, micro: Micro, run_micro: RunMicro) -> None:
    run_micro(micro("optim.epochs=0.25"), tmp_path)
    with pytest.raises(LapisError, match="holds a run already; continue it with --resume"):
        run_micro(micro("optim.epochs=0.25"), tmp_path)
    with pytest.raises(LapisError, match=r"another recipe: optim\.lr"):
        run_micro(micro("optim.epochs=0.25", "optim.lr=0.5"), tmp_path, resume=True)
    with pytest.raises(LapisError, match="no run to resume"):
        run_micro(micro(), tmp_path / "empty", resume=True)


def test_a_finished_run_resumes_to_the_same_summary(tmp_path: Path, micro: Micro, run_micro: RunMicro) -> None:
    first = run_micro(micro("optim.epochs=0.5"), tmp_path)
    again = run_micro(micro("optim.epochs=0.5"), tmp_path, resume=True)
    assert again == first


def test_a_loss_that_is_no_number_stops_the_run_and_spares_the_state(
    tmp_path: Path, micro: Micro, run_micro: RunMicro
) -> None:
    with pytest.raises(LapisError, match=r"loss is (nan|inf).*lower optim\.lr"):
        run_micro(micro("optim.lr=1e20", "optim.warmup_epochs=0", "optim.clip=0", "checkpoint.save_steps=1"), tmp_path)
    state = load_state(tmp_path)["objective"]
    assert state["student.head.weight"].isfinite().all()


def test_a_full_disk_is_a_clear_error_and_leaves_the_last_good_state(
    tmp_path: Path, micro: Micro, alone: Processes
) -> None:
    run = Run(micro(), None, tmp_path, alone, quiet=True)
    run.state.save(tmp_path)
    good = (tmp_path / STATE_FILE).read_bytes()
    run.state.progress.step = 3
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    # A file may not grow beyond a third of the state: writing fails as it does on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(good) // 3, hard))
    try:
        with pytest.raises(LapisError, match=r"cannot save the run's state.*untouched"):
            run.state.save(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert (tmp_path / STATE_FILE).read_bytes() == good
    assert [path.name for path in tmp_path.iterdir()] == [STATE_FILE]
    assert load_state(tmp_path)["progress"]["step"] == 0


def test_a_damaged_state_is_a_clear_error(tmp_path: Path, micro: Micro, run_micro: RunMicro) -> None:
    run_micro(micro("optim.epochs=0.25"), tmp_path)
    state = tmp_path / STATE_FILE
    state.write_bytes(state.read_bytes()[:-100])
    with pytest.raises(LapisError, match=r"state\.pt cannot be read"):
        run_micro(micro("optim.epochs=0.25"), tmp_path, resume=True)


def test_an_unfinished_line_of_a_killed_run_is_no_row(tmp_path: Path, micro: Micro, run_micro: RunMicro) -> None:
    run_micro(micro("optim.epochs=0.5"), tmp_path)
    rows = record(tmp_path)
    with (tmp_path / STEPS_FILE).open("a") as file:
        file.write("3,0.7")
    assert record(tmp_path) == rows


def test_unreadable_images_are_listed_and_too_many_stop_the_run(tmp_path: Path, micro: Micro, alone: Processes) -> None:
    generator = np.random.default_rng(0)
    for split, count in (("train", 120), ("val", 8)):
        for index in range(count):
            folder = tmp_path / "data" / split / str(index % 2)
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(generator.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(folder / f"{index}.png")
    damaged = tmp_path / "data" / "train" / "0" / "4.png"
    damaged.write_bytes(b"broken")
    recipe = micro("data.dataset=imagenet", "data.limit=0", "optim.epochs=1", "data.calibrate=8")
    summary = train(recipe, tmp_path / "data", tmp_path / "run", alone, quiet=True)
    assert summary["unreadable"] == 1
    assert str(damaged) in (tmp_path / "run" / "unreadable.txt").read_text()
    (tmp_path / "data" / "train" / "1" / "5.png").write_bytes(b"broken too")
    with pytest.raises(LapisError, match="2 of 120 training images cannot be read"):
        train(recipe, tmp_path / "data", tmp_path / "again", alone, quiet=True)


def test_the_random_state_of_torch_is_part_of_a_run(tmp_path: Path, micro: Micro, alone: Processes) -> None:
    run = Run(micro(), None, tmp_path, alone, quiet=True)
    torch.manual_seed(99)
    run.state.save(tmp_path)
    expected = torch.rand(3)
    torch.rand(7)
    run.state.restore(load_state(tmp_path))
    assert torch.equal(torch.rand(3), expected)
