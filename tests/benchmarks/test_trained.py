"""Trained networks beside other engines: accuracy, size and memory are of the real thing; times are not judged."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.common import main
from benchmarks.contenders import CONTENDERS, TORCH_FILE
from benchmarks.synthetic import random_network
from benchmarks.trained import SCORES_FILE, command
from lapis import Session
from lapis._util.metrics import interval95
from lapis.config import LapisConfig
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK
from lapis.pack import save
from tests.networks import small_config

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'lapis-snn[train]'")
pytestmark = pytest.mark.usefixtures("needs_kernels")

CLASSES, IMAGES_PER_CLASS = 3, 4


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A packed network, a dense one, test images and others, all small and random, as arguments."""
    from lapis.nn import LapisViT
    from lapis.nn.checkpoint import save_network

    config, generator = small_config(), np.random.default_rng(0)
    shape = {name: getattr(config, name) for name in ("image_size", "patch_size", "classes", "width", "depth", "heads")}
    torch.manual_seed(0)
    save(tmp_path / "packed.safetensors", random_network(config))
    save_network(tmp_path / "dense.safetensors", LapisViT(LapisConfig(**shape, quantize=False, relation="dot")), {})
    for name in ("test", "other"):
        for label in range(CLASSES):
            (tmp_path / name / str(label)).mkdir(parents=True)
            for at, pixels in enumerate(generator.integers(0, 256, (IMAGES_PER_CLASS, 8, 8, 3), dtype=np.uint8)):
                Image.fromarray(pixels).save(tmp_path / name / str(label) / f"{at}.png")
    return [
        str(tmp_path / "packed.safetensors"), "--dense", str(tmp_path / "dense.safetensors"), "--data",
        str(tmp_path / "test"), "--calibrate", str(tmp_path / "other"), "--rounds", "2", "--json",
    ]  # fmt: skip


def test_every_engine_has_time_accuracy_size_and_memory(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rivals = [name for name in ("onnx_static", "openvino_int8") if not CONTENDERS[name].missing()] or ["torch"]
    kept = tmp_path / "kept"
    given = [*words, "--engine", ",".join(rivals), "--batch", "1", "--folder", str(kept)]
    assert main(command, given) == EXIT_OK
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    assert [row["engine"] for row in rows][1:] == [CONTENDERS[name].label for name in rivals]
    files = sorted((tmp_path / "test").rglob("*.png"))
    labels = np.array([int(file.parent.name) for file in files])
    session = Session(tmp_path / "packed.safetensors")
    correct = int((session.run(files).argmax(1) == labels).sum())
    assert rows[0]["top1"] == round(100 * correct / len(files), 2)
    assert (rows[0]["top1_low"], rows[0]["top1_high"]) == tuple(
        round(edge, 2) for edge in interval95(correct, len(files))
    )
    assert rows[0]["times_ours"] == 1
    assert rows[0]["file_mb"] == round((tmp_path / "packed.safetensors").stat().st_size / 1e6, 2)
    for row in rows:
        assert row["images"] == CLASSES * IMAGES_PER_CLASS
        assert 0 < row["ms_low"] <= row["ms_per_image"] <= row["ms_high"]
        assert row["peak_mb"] > 1
    # What was made is not made again, and answers are not counted again.
    before, scores = (kept / TORCH_FILE).stat().st_mtime_ns, kept / SCORES_FILE
    scores.write_text(json.dumps(dict.fromkeys(json.loads(scores.read_text()), 0)))
    assert main(command, [*words, "--engine", rivals[0], "--batch", "2", "--folder", str(kept)]) == EXIT_OK
    again = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["batch"], row["top1"]) for row in again] == [(2, 0), (2, 0)]
    assert (kept / TORCH_FILE).stat().st_mtime_ns == before
    assert main(command, [*words, "--limit", "5", "--folder", str(kept)]) == EXIT_BAD_INPUT
    assert "made with other options" in capsys.readouterr().err


def test_a_rival_that_is_not_installed_is_named(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == "openvino" else find_spec(name))
    assert main(command, [*words, "--engine", "openvino_int8", "--batch", "1"]) == EXIT_OK
    heard = capsys.readouterr()
    assert len(json.loads(heard.out)["rows"]) == 1
    assert f"skipped {CONTENDERS['openvino_int8'].label}: openvino" in heard.err


def test_test_images_are_not_for_calibration(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words[words.index("--calibrate") + 1] = words[words.index("--data") + 1]
    assert main(command, words) == EXIT_BAD_INPUT
    assert "--calibrate needs others" in capsys.readouterr().err


@pytest.mark.parametrize(("place", "reason"), [(0, "not a packed network"), (2, "not those of a plain dense ViT")])
def test_networks_of_the_wrong_kind_are_refused(
    words: list[str], place: int, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words[0 if place == 0 else 2] = words[2 if place == 0 else 0]
    assert main(command, words) == EXIT_BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line
