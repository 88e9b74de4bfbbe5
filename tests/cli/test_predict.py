"""`lapis predict`: what it takes, names, JSON, CSV, progress, refusals, and no torch."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from lapis import models, pack
from lapis.cli import main
from lapis.cli.predict import command
from lapis.data.image_sources import names_images
from lapis.data.packaged import packaged_images
from lapis.errors import EXIT_BAD_INPUT, EXIT_CLOSED_PIPE, EXIT_INCOMPLETE, EXIT_OK
from lapis.runtime import Session
from tests.networks import wide_network


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    pack.save(path, wide_network(depth=1))
    return path


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)).save(path)
    return path


def test_the_json_holds_what_the_session_predicts(model: Path, image: Path) -> None:
    want = Session(model).predict(image, top_k=3)
    for extra in ([], ["--numpy"], ["--threads", "2"]):
        result = CliRunner().invoke(command, [str(model), str(image), "--top-k", "3", "--json", *extra])
        assert result.exit_code == 0, result.output
        answer = json.loads(result.output)["answers"][0]
        assert answer["image"] == str(image)
        assert [(one["index"], one["logit"]) for one in answer["classes"]] == [(one.index, one.logit) for one in want]


def test_people_get_names_and_shares(model: Path, image: Path) -> None:
    result = CliRunner().invoke(command, [str(model), str(image), str(image)])
    assert result.exit_code == 0, result.output
    assert result.output.count(str(image)) == 2
    assert result.output.count(" %") == 10
    assert "ms per image" in result.output


def test_what_does_not_exist_is_one_line_of_error(
    model: Path, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ([str(model), str(tmp_path / "none.png")], [str(tmp_path / "none.safetensors"), str(image)]):
        assert main(["predict", *words]) == EXIT_BAD_INPUT
        assert capsys.readouterr().err.count("\n") == 1


def test_a_prediction_never_imports_torch(model: Path, image: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"from lapis.cli import main; sys.exit(main(['predict', {str(model)!r}, {str(image)!r}]))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def _album(folder: Path) -> Path:
    """Pictures in a folder, in one below it and in a hidden one, beside a file that is no picture."""
    for number, name in enumerate(("b.png", "a.png", "below/c.png", ".hidden/d.png")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(packaged_images().pixels[number]).save(folder / name)
    (folder / "notes.txt").write_text("no picture")
    return folder


def _answered(capsys: pytest.CaptureFixture[str], *words: str, code: int = EXIT_OK) -> dict[str, Any]:
    assert main(["predict", *words, "--json"]) == code
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    return record


def test_a_folder_stands_for_its_pictures_and_those_below(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    album = _album(tmp_path / "album")
    answers = _answered(capsys, str(model), str(album))["answers"]
    assert [answer["image"] for answer in answers] == [str(album / name) for name in ("a.png", "b.png", "below/c.png")]


def test_a_pattern_that_no_shell_expanded_stands_for_its_matches(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    album = _album(tmp_path / "album")
    answers = _answered(capsys, str(model), str(album / "**" / "[ac].png"))["answers"]
    assert [answer["image"] for answer in answers] == [str(album / "a.png"), str(album / "below/c.png")]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(
    model: Path, image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = image.rename(image.with_name("image[1].png"))
    assert [answer["image"] for answer in _answered(capsys, str(model), str(named))["answers"]] == [str(named)]


def test_a_packaged_image_is_answered_as_its_pixels_are(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = _answered(capsys, str(model), "sample:7")["answers"][0]
    assert answer["image"] == "sample:7"
    assert answer["classes"][0]["logit"] == Session(model).predict(packaged_images().pixels[7])[0].logit


def test_the_bytes_of_an_image_come_from_standard_input(
    model: Path, image: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(image.read_bytes())))
    answers = _answered(capsys, str(model), "-", str(image))["answers"]
    assert [answer["image"] for answer in answers] == ["-", str(image)]
    assert answers[0]["classes"] == answers[1]["classes"]


@pytest.mark.parametrize("bad", ["noise.png", "none.png", "empty", "*.gif", "sample:400", "-"])
def test_a_bad_image_is_reported_and_the_others_are_answered(
    bad: str, model: Path, image: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(image.parent)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    Path("noise.png").write_bytes(b"not an image")
    Path("empty").mkdir()
    assert main(["predict", str(model), bad, image.name]) == EXIT_INCOMPLETE
    captured = capsys.readouterr()
    assert image.name in captured.out
    assert "1 in all" in captured.out
    assert "1 could not be read" in captured.out
    assert captured.err.startswith("lapis: error: ")
    assert bad in captured.err
    assert captured.err.count("\n") == 1
    record = _answered(capsys, str(model), bad, image.name, code=EXIT_INCOMPLETE)
    assert [one["image"] for one in record["unreadable"]] == [bad]
    assert main(["predict", str(model), bad]) == EXIT_BAD_INPUT
    assert capsys.readouterr().out == ""


def test_the_csv_holds_a_row_per_class_and_one_per_bad_image(
    model: Path, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "answers.csv"
    words = [str(model), str(image), "none.png", "--top-k", "2", "--csv", str(table)]
    record = _answered(capsys, *words, code=EXIT_INCOMPLETE)
    assert record["written"] == str(table)
    with table.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [(row["image"], row["rank"]) for row in rows] == [(str(image), "1"), (str(image), "2"), ("none.png", "")]
    for row, one in zip(rows, record["answers"][0]["classes"], strict=False):
        assert (int(row["index"]), row["label"], float(row["logit"])) == (one["index"], one["label"], one["logit"])
    assert "No such file" in rows[2]["error"]


def test_no_csv_is_left_where_nothing_was_answered_or_could_be_written(
    model: Path, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.rglob("*"))
    for words in (["none.png", "--csv", str(tmp_path / "new" / "a.csv")], [str(image), "--csv", str(image / "a.csv")]):
        assert main(["predict", str(model), *words]) == EXIT_BAD_INPUT
    assert sorted(tmp_path.rglob("*")) == before


def test_answers_are_printed_before_all_images_are_read(
    model: Path, image: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lapis.cli.predict.BATCH", 1)
    printed: list[str] = []
    predict_each = Session.predict_each

    def spy(self: Session, images: Any, top_k: int) -> Any:
        printed.append(capsys.readouterr().out)
        return predict_each(self, images, top_k)

    monkeypatch.setattr(Session, "predict_each", spy)
    assert main(["predict", str(model), str(image), "sample:1"]) == EXIT_OK
    assert printed[0] == ""
    assert printed[1].startswith(str(image))


def _read_all(reader: int) -> str:
    """Everything that waits in a pipe or a terminal that nobody writes to any more."""
    parts = []
    # The end of a terminal is an error in Linux, that of a pipe is empty.
    with suppress(OSError):
        while part := os.read(reader, 1 << 16):
            parts.append(part)
    os.close(reader)
    return b"".join(parts).decode()


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_is_for_terminals_and_never_among_the_answers(terminal: bool, model: Path) -> None:
    words = [sys.executable, "-m", "lapis.cli", "predict", str(model), *(f"sample:{number}" for number in range(20))]
    reader, writer = pty.openpty() if terminal else os.pipe()
    done = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=writer, env={**os.environ, "TERM": "xterm"})
    os.close(writer)
    out = done.communicate()[0].decode()
    assert done.returncode == EXIT_OK
    progress = _read_all(reader)
    assert ("20/20" in progress) == terminal
    assert terminal or progress == ""
    assert out.count("sample:") == 20
    assert "\x1b" not in out


def test_one_thread_is_one_thread(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for threads, text in ((1, ", 1 thread\n"), (2, ", 2 threads\n")):
        assert main(["predict", str(model), "sample:0", "--threads", str(threads)]) == EXIT_OK
        assert text in capsys.readouterr().out


def test_an_image_in_place_of_a_model_means_the_default_model(
    image: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert names_images("sample:0")
    assert names_images("no_such_photo.jpg")
    assert names_images("photos/*")
    assert names_images(str(tmp_path))
    assert not names_images("lapis_tiny.cifar10")
    assert not names_images("model.safetensors")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "best.safetensors").write_text("")
    assert not names_images(str(tmp_path / "run"))
    assert _answered(capsys, str(image))["model"] == models.DEFAULT_MODEL
    assert main(["predict"]) == EXIT_BAD_INPUT
    assert "no image was given" in capsys.readouterr().err


def test_the_classes_are_listed(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(model), "--classes", "--json"]) == EXIT_OK
    names = json.loads(capsys.readouterr().out)["classes"]
    assert len(names) == models.load(model).config.classes


def test_below_the_least_score_it_is_none_of_these(
    model: Path, image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(model), str(image), "--min-score", "1"]) == EXIT_OK
    assert "none of these" in capsys.readouterr().out
    assert main(["predict", str(model), str(image), "--min-score", "0"]) == EXIT_OK
    assert "none of these" not in capsys.readouterr().out
    assert _answered(capsys, str(model), str(image), "--min-score", "1")["answers"][0]["none_of_these"] is True
    assert "none_of_these" not in _answered(capsys, str(model), str(image))["answers"][0]


def test_the_csv_is_written_though_the_reader_of_the_output_leaves(model: Path, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed: it tells the exit code of each command in a pipe")
    words = f"{sys.executable} -m lapis.cli predict {model} sample:0 sample:1 --csv answers.csv"
    line = f"{words} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run([bash, "-c", line], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stderr, int(done.stdout)) == ("", EXIT_CLOSED_PIPE)
    assert "sample:1" in (tmp_path / "answers.csv").read_text()
