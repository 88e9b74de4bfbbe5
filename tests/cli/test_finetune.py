"""`lapis finetune` as a person uses it: a folder of real images in, a packed network and a report out."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapis import Session, models, pack
from lapis.cli import main
from lapis.data.class_folders import open_class_folders
from lapis.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_OK
from lapis.nn import save_network
from tests.networks import small_config, small_model
from tests.pictures import write_class_folders

CLASSES = ("cat", "frog", "ship")
SMALL = small_config(image_size=16, patch_size=8, classes=4, width=12, depth=1)
QUICK = ("--epochs", "1", "--threads", "1", "--quiet")
PATIENCE_SECONDS = 240


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_class_folders(tmp_path_factory.mktemp("images") / "pictures", 20, CLASSES)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small dense network, as a checkpoint."""
    path = tmp_path_factory.mktemp("models") / "dense.safetensors"
    save_network(path, small_model(SMALL.dense())[0])
    return str(path)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small deployed network, as a packed file."""
    from lapis.convert import from_model

    path = tmp_path_factory.mktemp("models") / "deployed.safetensors"
    pack.save(path, from_model(small_model(SMALL)[0]))
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["finetune", *words, "--json"]) == EXIT_OK
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    return record


def test_a_folder_of_photos_becomes_a_packed_network_that_knows_them(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the packaged model with the defaults, but for half an epoch at half the size."""
    out = tmp_path / "out"
    less = ("--epochs", "0.5", "--set", "model.image_size=64")
    record = run(capsys, str(pictures), "--out", str(out), *less, "--threads", "1", "--quiet")
    session, own = Session(out / "pictures.safetensors"), open_class_folders(pictures)
    assert (session.class_names, session.config.weight_bits) == (CLASSES, 6)
    answers = session.run(list(own.held_out.paths)).argmax(axis=1)
    assert record["accuracy"]["correct"] == int((answers == own.held_out.labels).sum())
    # Chance is a third.
    assert record["accuracy"]["top1"] >= 75
    assert record["accuracy"]["images"] == record["held_out_images"] == 12
    assert [row["name"] for row in record["classes"]] == list(CLASSES)
    assert np.sum(record["confusion"]) == 12
    assert record["energy"]["ratio"] > 1
    assert "<b>" not in Path(record["report"]).read_text(encoding="utf-8").split("<script", 1)[0]
    assert [stage["stage"] for stage in record["stages"]] == ["w6"]


def test_a_dense_start_goes_through_every_stage(
    pictures: Path, dense: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = run(capsys, str(pictures), "--start", dense, "--out", str(tmp_path / "out"), *QUICK)
    assert [stage["stage"] for stage in record["stages"]] == ["exact", "pow2", "w6"]
    configs = [models.load(stage["folder"]).config for stage in record["stages"]]
    assert [(c.row_scale, c.readout, c.weight_bits) for c in configs] == [
        ("exact", "real", 32), ("pow2", "spikes", 32), ("pow2", "spikes", 6),
    ]  # fmt: skip
    network = pack.load(record["file"])
    assert network.class_names == CLASSES
    # The last test of training runs in the deployed arithmetic, so it is that of the packed file.
    assert record["stages"][-1]["top1"] == pytest.approx(record["accuracy"]["top1"])


def test_a_deployed_start_keeps_its_configuration_and_what_it_was_trained_on(
    pictures: Path, deployed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = run(capsys, str(pictures), "--start", deployed, "--out", str(tmp_path / "out"), *QUICK)
    network, before = pack.load(record["file"]), pack.load(deployed)
    assert network.config == before.config.replace(classes=3)


def test_fast_fits_the_head_only_and_the_same_folder_trains_on_from_there(
    pictures: Path, deployed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["finetune", str(pictures), "--start", deployed, "--out", str(tmp_path / "out"), "--epochs", "1"]
    assert main([*words, "--fast", "--threads", "1"]) == EXIT_OK
    lines = capsys.readouterr().out.splitlines()
    assert not any(line.startswith("stage 1") for line in lines)
    assert "leave out --fast" in lines[-1]
    network, before = pack.load(tmp_path / "out" / "pictures.safetensors"), pack.load(deployed)
    assert network.config == before.config.replace(classes=3)
    # Nothing but the head is new.
    blocks = zip(network.blocks, before.blocks, strict=True)
    assert all((ours.qkv.weight == theirs.qkv.weight).all() for ours, theirs in blocks)
    record = run(capsys, *words[1:], "--quiet")
    assert (record["fast"], [stage["stage"] for stage in record["stages"]]) == (False, ["w6"])
    assert main([*words, "--fast"]) == EXIT_BAD_INPUT
    assert "holds a training already" in capsys.readouterr().err


def test_fast_needs_a_deployed_start(
    pictures: Path, dense: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["finetune", str(pictures), "--start", dense, "--out", str(tmp_path / "out"), "--fast"]
    assert main(words) == EXIT_BAD_INPUT
    assert "is not a deployed network" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_plan_comes_first_and_the_report_last(
    pictures: Path, dense: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["finetune", str(pictures), "--start", dense, "--out", str(tmp_path / "out"), "--epochs", "1"]
    assert main(words) == EXIT_OK
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].split(maxsplit=1) == ["images", "48 to train on, 12 held out (a fifth of each class, by file name)"]
    assert lines[1].endswith("3: cat, frog, ship")
    assert lines[3].startswith("stage 1   exact: 1 epochs, 12 steps of 4 images")
    assert any(line.startswith("time ") for line in lines[:10])
    assert any(re.fullmatch(r"memory +about \d+\.\d GB", line) for line in lines[:10])
    assert lines[-1].endswith(str(tmp_path / "out" / "report.html"))
    assert "left" in captured.err
    again = tmp_path / "out" / "report.html"
    stamp = again.stat().st_mtime_ns
    assert main(words) == EXIT_OK  # all stages are finished: it only reports again
    assert "(continued)" in capsys.readouterr().out
    assert again.stat().st_mtime_ns > stamp


def test_a_stopped_fine_tuning_continues_with_the_same_command_to_the_same_bytes(
    pictures: Path, dense: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--set", "checkpoint.log_steps=1", "--epochs", "6", "--threads", "1", "--quiet"]
    words = ["finetune", str(pictures), "--start", dense, *settings]
    process = subprocess.Popen([sys.executable, "-m", "lapis.cli", *words, "--out", str(tmp_path / "cut")])
    steps, deadline = tmp_path / "cut" / "1_exact" / "steps.csv", time.monotonic() + PATIENCE_SECONDS
    while not (steps.is_file() and steps.read_text().count("\n") > 3):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == EXIT_INTERRUPTED
    assert not (tmp_path / "cut" / "pictures.safetensors").exists()
    assert main([*words, "--out", str(tmp_path / "cut")]) == EXIT_OK
    assert main([*words, "--out", str(tmp_path / "whole")]) == EXIT_OK
    files = [(tmp_path / name / "pictures.safetensors").read_bytes() for name in ("cut", "whole")]
    assert files[0] == files[1]
    assert not list(tmp_path.rglob(".partial-*"))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--set", "model.classes=5"), "they are counted"),
        (("--teacher", "lapis_tiny.cifar10"), "knows 10 classes, the student 3"),
        (("--start", "lapis_tiny_cifar11"), "timm"),
    ],
)
def test_bad_wishes_are_one_clear_line_and_leave_nothing_behind(
    pictures: Path, dense: str, tmp_path: Path, words: tuple[str, ...], complaint: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    given = ["finetune", str(pictures), "--start", dense, "--out", str(tmp_path / "out"), *QUICK, *words]
    assert main(given) == EXIT_BAD_INPUT
    error = capsys.readouterr().err
    assert complaint in error
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()


def test_unreadable_images_are_named_before_anything_is_written(
    dense: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_class_folders(tmp_path / "pictures", 5, CLASSES)
    (folder / "cat" / "broken.png").write_bytes(b"no image")
    words = ["finetune", str(folder), "--start", dense, "--out", str(tmp_path / "out"), *QUICK]
    assert main(words) == EXIT_BAD_INPUT
    error = capsys.readouterr().err
    assert "1 of 16 images cannot be read" in error
    assert "broken.png" in error
    assert not (tmp_path / "out").exists()


def test_other_images_or_settings_do_not_continue_a_fine_tuning(
    dense: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_class_folders(tmp_path / "pictures", 8, CLASSES)
    words = ["finetune", str(folder), "--start", dense, "--out", str(tmp_path / "out"), *QUICK]
    assert main(words) == EXIT_OK
    assert main([*words, "--set", "optim.lr=1"]) == EXIT_BAD_INPUT
    assert "optim.lr" in capsys.readouterr().err
    next((folder / "cat").iterdir()).unlink()
    assert main(words) == EXIT_BAD_INPUT
    assert "the images of the folder" in capsys.readouterr().err
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    assert main([*words, "--out", str(tmp_path / "other")]) == EXIT_BAD_INPUT
    assert "holds no fine-tuning" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["[]", '{"stages": 3}', "{"])
def test_a_plan_of_another_shape_is_one_error(
    content: str, pictures: Path, deployed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "plan.json").write_text(content)
    assert (
        main(["finetune", str(pictures), "--start", deployed, "--out", str(tmp_path / "out"), *QUICK]) == EXIT_BAD_INPUT
    )
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert "plan.json" in error or "was started otherwise" in error
