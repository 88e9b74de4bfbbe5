"""`lapis demo` as a person uses it: the story of one model, every figure from its own run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapis import pack
from lapis.cli import main
from lapis.data.packaged import CIFAR10_CLASSES, packaged_images
from lapis.deploy import integer
from lapis.energy import estimate
from lapis.errors import EXIT_BAD_INPUT, EXIT_CHECK_FAILED, EXIT_OK
from lapis.preprocess import Preprocess
from lapis.report import demo as checks
from lapis.runtime import Session
from lapis.trace import Tally
from tests.networks import small_config, small_model

CONFIG = small_config(image_size=16, patch_size=8, classes=10, width=12, window=7)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from lapis.convert.fold import from_model

    model, _ = small_model(CONFIG, seed=5)
    path = tmp_path_factory.mktemp("models") / "small.safetensors"
    pack.save(path, from_model(model, class_names=CIFAR10_CLASSES))
    return path


@pytest.fixture(scope="module")
def results(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of one demo, and what it printed as JSON."""
    out = tmp_path_factory.mktemp("demo")
    words = [sys.executable, "-m", "lapis.cli", "demo", "--model", str(packed), "--out", str(out), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return out, json.loads(done.stdout)


def test_every_check_passes(results: tuple[Path, dict[str, Any]]) -> None:
    _, facts = results
    assert facts["checks_passed"] is True
    assert {row["name"]: row["codes_differing"] for row in facts["equality"]} == {"spikes": 0, "engine": 0}
    assert all(row["codes"] > 0 and row["passed"] for row in facts["equality"])


def test_the_figures_are_those_of_the_model(results: tuple[Path, dict[str, Any]], packed: Path) -> None:
    _, facts = results
    network, session, sample = pack.load(packed), Session(packed), packaged_images()
    images, labels = sample.pixels, sample.labels
    logits = integer.run(network, session.read(images))
    assert facts["accuracy"]["images"] == len(images)
    assert facts["accuracy"]["correct"] == int((logits.argmax(axis=1) == labels).sum())
    tally = Tally()
    tally.add(session.watch(images[: checks.WATCHED]).trace)
    assert tally.images == facts["measured"] == checks.WATCHED
    assert facts["energy"]["energy_mj"] == pytest.approx(estimate(CONFIG, tally).energy_mj, rel=1e-12)
    assert facts["bytes"] == packed.stat().st_size
    assert facts["speed"]["ours_ms"] > 0
    assert facts["speed"]["ratio"] == facts["speed"]["rival_ms"] / facts["speed"]["ours_ms"]


def test_the_report_holds_the_figures_and_links_to_the_page(results: tuple[Path, dict[str, Any]]) -> None:
    out, facts = results
    report = Path(facts["report"])
    assert report == out / "index.html"
    inside = re.search(r'id="data">(.*?)</script>', report.read_text(encoding="utf-8"), re.S)
    assert inside is not None
    data = json.loads(inside[1])
    answers = data.pop("answers")
    assert data.pop("photo_images") == []
    assert data == {name: value for name, value in facts.items() if name != "report"}
    assert len(answers) == checks.SHOWN
    assert (out / facts["explain"]).is_file()
    assert (out / facts["live"]).is_file()


def test_the_report_path_and_the_next_command_are_printed_last(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--model", str(packed), "--out", str(tmp_path)]) == EXIT_OK
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "classify", "verify", "verify", "accuracy", "energy", "speed", "explain", "live", "report", "next",
    ]  # fmt: skip
    assert lines[-2].endswith(str(tmp_path / "index.html"))
    assert lines[-1].endswith("lapis predict YOUR_PHOTO.jpg")


def test_a_network_that_crops_its_images_passes_every_check() -> None:
    from lapis.convert.fold import from_model

    preprocess = Preprocess(CONFIG.image_size, crop=0.875)
    network = from_model(small_model(CONFIG, seed=5)[0], preprocess, class_names=CIFAR10_CLASSES)
    pixels = Session(network).read(packaged_images().pixels[: checks.ENGINE_IMAGES])
    agreements, _ = checks.compare_executors(network, pixels)
    assert [agreement.differing for agreement in agreements] == [0, 0]


def test_a_failed_check_is_told_and_fails_the_command(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = Session.watch_integers

    def tampered(self: Any, images: Any) -> Any:
        watched = real(self, images)
        codes = np.array(watched.trace[1, "v"])
        codes[0, 0, 0] = 1 - min(1, int(codes[0, 0, 0]))
        watched.trace.note(1, "v", codes)
        return watched

    monkeypatch.setattr(Session, "watch_integers", tampered)
    assert main(["demo", "--model", str(packed), "--out", str(tmp_path)]) == EXIT_CHECK_FAILED
    assert "FAIL: " in capsys.readouterr().out


def test_without_torch_the_story_is_whole_but_for_the_race(packed: Path, tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from lapis.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["demo", "--model", str(packed), "--out", str(tmp_path), "--json"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_OK, done.stderr
    facts = json.loads(done.stdout)
    assert facts["speed"]["rival_ms"] is None
    assert "pip install" in facts["speed"]["rival"]
    assert facts["checks_passed"] is True


def test_a_network_of_other_classes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from lapis.convert.fold import from_model

    model, _ = small_model(CONFIG.replace(classes=3), seed=5)
    path = tmp_path / "three.safetensors"
    pack.save(path, from_model(model))
    assert main(["demo", "--model", str(path), "--out", str(tmp_path / "out")]) == EXIT_BAD_INPUT
    assert "3 other classes" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["demo", "--out", str(tmp_path / "file" / "sub")]) == EXIT_BAD_INPUT
    assert capsys.readouterr().err.startswith("lapis: error: cannot make the folder")
