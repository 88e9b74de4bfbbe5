"""`lapis train` as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lapis.cli import main
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK
from lapis.train import recipes

TINY = [
    "--set", "model.depth=1", "--set", "model.width=16", "--set", "model.heads=2", "--set", "model.patch_size=8",
    "--set", "data.limit=32", "--set", "data.test_limit=10", "--set", "data.calibrate=8", "--set", "optim.batch=16",
    "--set", "optim.epochs=1", "--quiet",
]  # fmt: skip


def test_without_a_recipe_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--json"]) == EXIT_OK
    assert set(json.loads(capsys.readouterr().out)) == set(recipes.names())


def test_a_recipe_is_shown_with_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "cifar10_tiny", "--show", "--json", "--set", "optim.lr=1e-4", "--start", "x"]) == EXIT_OK
    shown = json.loads(capsys.readouterr().out)
    assert (shown["optim"]["lr"], shown["start"], shown["model"]["window"]) == (1e-4, "x", 15)


def test_a_run_prints_its_summary_and_can_be_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "smoke", "--out", str(tmp_path / "run"), *TINY, "--json"]) == EXIT_OK
    summary = json.loads(capsys.readouterr().out)
    assert {"top1", "top5", "images", "energy", "activity"} <= summary.keys()
    assert summary["steps"] == 2
    assert main(["train", "smoke", "--out", str(tmp_path / "run"), *TINY, "--resume"]) == EXIT_OK
    assert "files in" in capsys.readouterr().out


def test_a_data_folder_of_the_environment_is_for_other_recipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAPIS_DATA", str(tmp_path))
    assert main(["train", "smoke", "--out", str(tmp_path / "run"), *TINY]) == EXIT_OK


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["smokey"], "did you mean 'smoke'"),
        (["smoke", "--set", "optim.rate=1"], "unknown setting 'optim.rate'"),
        (["smoke", "--resume"], "no run to resume"),
        (["smoke", "--set", "optim.batch=1000"], "exceeds the 320 training images"),
        (["smoke", "--start", "missing.safetensors"], "no such file"),
        (["cifar10_tiny", "--data", "/nowhere"], "/nowhere is not a folder; unpack the official CIFAR archive"),
        (["smoke", "--data", "/nowhere"], "takes no data folder, but /nowhere was given"),
        (["smoke", "--set", "model.classes=30"], "the images have 10 classes, the network 30"),
        (["smoke", "--device", "abacus"], "use auto, cpu or cuda"),
    ],
)
def test_bad_input_is_one_clear_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == EXIT_BAD_INPUT
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
