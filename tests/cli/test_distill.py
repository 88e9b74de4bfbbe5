"""`lapis distill` as a person uses it: a dense network and pictures in, a packed network and a report out."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapis import Session
from lapis.cli import main
from lapis.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_OK
from lapis.train.step import OptimizerStep
from tests.distilled import CONFIG, shorten, write_dense, write_photos

NAMES = [f"<i>thing {number}</i>" for number in range(CONFIG.classes)]


@pytest.fixture(scope="module", autouse=True)
def few_steps() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        yield


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dense network, photos of which one cannot be read, labelled photos and names of classes."""
    folder = tmp_path_factory.mktemp("given")
    write_dense(folder / "dense.safetensors")
    write_photos(folder / "photos")
    write_photos(folder / "labelled", 12)
    (folder / "photos" / "bad.png").write_bytes(b"no image")
    (folder / "empty").mkdir()
    (write_photos(folder / "other", 3) / "0").rename(folder / "other" / "cat")
    (folder / "few.txt").write_text("cat\ndog\n")
    (folder / "names.txt").write_text("\n".join(NAMES) + "\n")
    return folder


def words(given: Path, file: Path, *more: str) -> list[str]:
    source, photos = given / "dense.safetensors", given / "photos"
    return ["distill", str(source), "--images", str(photos), "-o", str(file), "--threads", "1", *more]


@pytest.fixture(scope="module")
def finished(given: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed file that the command wrote without a stop."""
    file = tmp_path_factory.mktemp("out") / "m.safetensors"
    assert main(words(given, file, "--names", str(given / "names.txt"), "-q")) == EXIT_OK
    return file


def test_the_plan_comes_first_and_the_report_last(
    given: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(given, tmp_path / "m.safetensors", "--labelled", str(given / "labelled"))) == EXIT_OK
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    steps = [line.split()[0] for line in lines]
    assert steps == [
        *("images", "images", "plan", "plan", "plan", "plan", "blocks", "whole"),
        *("agrees", "labelled", "verified", "packed", "report"),
    ]  # fmt: skip
    assert "bad.png" in lines[0]
    assert lines[3].startswith("plan      blocks: 24 steps of 8 images")
    assert "GB of memory" in lines[5]
    assert " 0 of " in lines[-3]
    assert "codes differ between spikes" in lines[-3]
    assert lines[-1].endswith(str(tmp_path / "m.html"))
    assert "left" in captured.err


def test_json_has_the_figures_of_the_packed_file(
    given: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command again, on what is finished: nothing is trained anew, and all is reported."""
    before = finished.read_bytes()
    assert main(words(given, finished, "--names", str(given / "names.txt"), "-q", "--json")) == EXIT_OK
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert finished.read_bytes() == before
    assert [stage["stage"] for stage in record["stages"]] == ["calibrated", "blocks", "whole"]
    assert all(len(stage["block_errors"]) == CONFIG.depth for stage in record["stages"])
    assert record["agreement"]["top1"] == pytest.approx(record["stages"][-1]["agreement"])
    assert record["verified"]["passed"]
    assert record["verified"]["codes_differing"] == 0 < record["verified"]["codes"]
    assert len(record["unreadable"]) == 1
    assert record["labelled"] is None
    session = Session(finished)
    assert list(session.class_names) == NAMES
    for example in record["examples"]:
        assert session.class_names[int(session.run([example["file"]]).argmax())] == example["answer"]
        assert example["answer"] != example["dense_answer"]
    assert "<i>thing" not in Path(record["report"]).read_text(encoding="utf-8")


def test_the_labelled_images_are_tested_with_both_networks(
    given: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--names", str(given / "names.txt"), "--labelled", str(given / "labelled"), "-q", "--json")
    assert main(words(given, finished, *more)) == EXIT_OK
    labelled = json.loads(capsys.readouterr().out)["labelled"]
    files = sorted((given / "labelled").rglob("*.png"))
    answers = Session(finished).run(files).argmax(axis=1)
    right = np.mean([int(file.parent.name) == answer for file, answer in zip(files, answers, strict=True)])
    assert labelled["images"] == len(files) == 12
    assert labelled["deployed"] == pytest.approx(100 * right)
    assert 0 <= labelled["dense"] <= 100


@pytest.mark.parametrize("at", [5, 27])
def test_ctrl_c_saves_and_the_same_command_continues_to_the_same_bytes(
    at: int, given: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    step, taken = OptimizerStep.__call__, []

    def interrupted(self: OptimizerStep, *arguments: Any) -> dict[str, Any]:
        taken.append(1)
        if len(taken) == at:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, *arguments)

    monkeypatch.setattr(OptimizerStep, "__call__", interrupted)
    given_words = words(given, tmp_path / "m.safetensors", "--names", str(given / "names.txt"), "-q")
    assert main(given_words) == EXIT_INTERRUPTED
    assert "the same command continues" in capsys.readouterr().err
    assert len(taken) == at
    assert not (tmp_path / "m.safetensors").exists()
    assert main(given_words) == EXIT_OK
    assert len(taken) == 30
    assert (tmp_path / "m.safetensors").read_bytes() == finished.read_bytes()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"--images": "missing"}, "is not a folder"),
        ({"--images": "empty"}, "holds no images"),
        ({"--images": "labelled"}, "12 images were found"),
        ({"-o": "dense.safetensors"}, "is an input"),
        ({"-o": "page.html"}, "name of the report"),
        ({"-o": "missing/m.safetensors"}, "there is no folder"),
        ({"-o": "few.txt"}, "not a packed network"),
        ({"--names": "few.txt"}, "2 class names were given"),
        ({"--names": "missing.txt"}, "cannot be read"),
        ({"--labelled": "missing"}, "is not a folder"),
        ({"--labelled": "other"}, "has no class"),
        ({"--folder": "photos"}, "is also an input"),
    ],
)
def test_bad_input_is_one_clear_line_before_anything_is_trained(
    change: dict[str, str], complaint: str, given: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(given)
    chosen = {"--images": "photos", "-o": "new.safetensors", "--names": "names.txt"} | change
    given_words = [word for pair in chosen.items() for word in pair]
    assert main(["distill", "dense.safetensors", *given_words, "-q"]) == EXIT_BAD_INPUT
    error = capsys.readouterr().err
    assert complaint in error
    assert "Traceback" not in error
    assert error.count("\n") == 1
    assert not Path("new.safetensors").exists()
