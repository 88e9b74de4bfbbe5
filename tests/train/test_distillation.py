"""A dense network becomes a packed one without labels; stopped and continued, it is the same bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lapis import Session
from lapis.data.unlabelled import find_images, load_list
from lapis.errors import LapisError
from lapis.train import distillation as module
from lapis.train.distillation import Distilled, distill
from lapis.train.loop import train_or_resume
from tests.distilled import shorten, write_dense, write_photos


@pytest.fixture(scope="module", autouse=True)
def few_steps() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        yield


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures, one of which cannot be read."""
    folder = write_photos(tmp_path_factory.mktemp("photos"))
    (folder / "0" / "bad.png").write_bytes(b"no image")
    return folder


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_dense(tmp_path_factory.mktemp("models") / "dense.safetensors")


@pytest.fixture(scope="module")
def finished(
    dense: str, photos: Path, tmp_path_factory: pytest.TempPathFactory, few_steps: None
) -> tuple[Distilled, list[str]]:
    """A distillation, and what it reported."""
    lines: list[str] = []
    result = distill(
        dense, [photos], tmp_path_factory.mktemp("out") / "m.safetensors", report=lambda step, text: lines.append(text)
    )
    assert result is not None
    return result, lines


def test_a_dense_network_becomes_a_packed_one_that_is_nearer_than_calibration(
    finished: tuple[Distilled, list[str]],
) -> None:
    result, lines = finished
    assert sum(result.after["block_errors"]) < sum(result.before["block_errors"])
    assert result.after["kl"] < result.before["kl"]
    assert ["blocks", "whole"] == list(result.summaries) == list(result.nearness)
    session = Session(result.file)
    answers = session.run(list(result.held_aside.paths)).argmax(axis=1)
    agreement = 100 * np.mean(answers == result.dense_logits.argmax(axis=1))
    assert agreement == pytest.approx(result.summaries["whole"]["top1"])
    assert any("GB of memory" in text for text in lines)


def test_a_stopped_distillation_continues_bit_for_bit(
    finished: tuple[Distilled, list[str]], dense: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once, _ = finished
    calls: list[str] = []

    def stopped_after_blocks(recipe: Any, *arguments: Any) -> dict[str, Any]:
        calls.append(recipe.name)
        return {"interrupted": True} if len(calls) == 2 else train_or_resume(recipe, *arguments)

    monkeypatch.setattr(module, "train_or_resume", stopped_after_blocks)
    assert distill(dense, [photos], tmp_path / "twice.safetensors") is None
    # Images that appear in between are not taken: the list is kept.
    Image.new("RGB", (40, 40)).save(photos / "new.png")
    again = distill(dense, [photos], tmp_path / "twice.safetensors")
    (photos / "new.png").unlink()
    assert again is not None
    assert again.file.read_bytes() == once.file.read_bytes()


def test_a_goal_adds_a_stage_that_silences_values(
    finished: tuple[Distilled, list[str]], dense: str, photos: Path, tmp_path: Path
) -> None:
    busy, rare = finished[0], distill(dense, [photos], tmp_path / "b.safetensors", goal=0.4)
    assert rare is not None
    points = ("attention_in", "v", "readout", "mlp_in")
    before, after = (
        np.mean([result.summaries[list(result.summaries)[-1]]["activity"][p] for p in points])
        for result in (busy, rare)
    )
    assert after < before
    assert list(rare.summaries) == ["blocks", "silence", "whole"]


def test_a_timm_like_module_is_taken_from_memory(timm: ModuleType, photos: Path, tmp_path: Path) -> None:
    model = timm.models.vision_transformer.VisionTransformer(
        img_size=32, patch_size=8, embed_dim=64, depth=2, num_heads=1, num_classes=5
    )
    result = distill(model, [photos], tmp_path / "m.safetensors")
    assert result is not None
    assert Session(result.file).config.classes == 5


def test_unreadable_images_are_reported_and_left_out(finished: tuple[Distilled, list[str]]) -> None:
    result, lines = finished
    assert any("left out" in line and "bad.png" in line for line in lines)
    listed = load_list(result.plan.folder / "images.json")
    assert len(listed.unreadable) == 1
    assert all(path.name != "bad.png" for path in (*listed.train.paths, *listed.held_aside.paths))


def test_minutes_decide_the_steps() -> None:
    seconds = {"blocks": 2.0, "whole": 3.0}
    assert module._steps(["blocks", "whole"], seconds, None) == {"blocks": 24, "whole": 6}
    steps = module._steps(["blocks", "whole"], seconds, 20)
    assert sum(steps[name] * seconds[name] for name in steps) == pytest.approx(20 * 60, rel=0.01)
    # A short time goes to the first stage alone.
    assert list(module._steps(["blocks", "whole"], seconds, 2)) == ["blocks"]


def test_folders_without_images_and_other_choices_are_refused(
    finished: tuple[Distilled, list[str]], dense: str, photos: Path, tmp_path: Path
) -> None:
    with pytest.raises(LapisError, match="is not a folder"):
        find_images([tmp_path / "missing"])
    with pytest.raises(LapisError, match="holds no images"):
        find_images([tmp_path])
    with pytest.raises(LapisError, match="another choice of minutes"):
        distill(dense, [photos], finished[0].file, minutes=3)
    with pytest.raises(LapisError, match="another choice of images"):
        distill(dense, [photos / "0"], finished[0].file)
    with pytest.raises(LapisError, match="3 class names"):
        distill(dense, [photos], tmp_path / "n.safetensors", class_names=("a", "b", "c"))
    with pytest.raises(LapisError, match="a spiking network already"):
        distill(finished[0].file, [photos], tmp_path / "n.safetensors")
