"""A dense network becomes a packed one without labels; stopped and continued, it is the same bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lapis import Session
from lapis.data.unlabelled import find_images, load_list
from lapis.errors import LapisError
from lapis.nn import save_network
from lapis.train import distillation as module
from lapis.train.distillation import Stage, distill
from tests.networks import small_config, small_model

CONFIG = small_config(image_size=32, patch_size=8, classes=7, width=16, depth=3)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    draw = np.random.default_rng(0)
    for index in range(60):
        (folder / str(index % 3)).mkdir(exist_ok=True)
        small = Image.fromarray(draw.integers(0, 255, (6, 7, 3), np.uint8))
        small.resize((48, 40), Image.Resampling.BICUBIC).save(folder / str(index % 3) / f"{index}.png")
    return folder


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "dense.safetensors"
    save_network(path, small_model(CONFIG.dense())[0])
    return str(path)


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 8)
    stages = {"blocks": Stage(2e-3, 12, 0.5), "whole": Stage(5e-4, 6, 0.5, tokens=0.1, average=0.9)}
    monkeypatch.setattr(module, "STAGES", {**stages, "silence": Stage(5e-4, 6, 0.5, tokens=0.1)})


def test_a_dense_network_becomes_a_packed_one_that_is_nearer_than_calibration(
    dense: str, photos: Path, tmp_path: Path
) -> None:
    lines: list[tuple[str, str]] = []
    result = distill(dense, [photos], tmp_path / "m.safetensors", report=lambda *line: lines.append(line))
    assert result is not None
    assert sum(result.after["block_errors"]) < sum(result.before["block_errors"])
    assert result.after["kl"] < result.before["kl"]
    assert {"blocks", "whole"} == set(result.summaries)
    session = Session(result.file)
    answers = session.run(list(result.held_aside.paths)).argmax(axis=1)
    agreement = 100 * np.mean(answers == result.held_aside.labels)
    assert agreement == pytest.approx(result.summaries["whole"]["top1"])
    assert any("GB of memory" in text for _, text in lines)


def test_a_stopped_distillation_continues_bit_for_bit(
    dense: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = distill(dense, [photos], tmp_path / "once.safetensors")
    assert once is not None
    train, calls = module.train_or_resume, []

    def stopped_after_blocks(recipe: Any, *arguments: Any) -> dict[str, Any]:
        calls.append(recipe.name)
        return {"interrupted": True} if len(calls) == 2 else train(recipe, *arguments)

    monkeypatch.setattr(module, "train_or_resume", stopped_after_blocks)
    assert distill(dense, [photos], tmp_path / "twice.safetensors") is None
    # Images that appear in between are not taken: the list is kept.
    Image.new("RGB", (40, 40)).save(photos / "new.png")
    again = distill(dense, [photos], tmp_path / "twice.safetensors")
    (photos / "new.png").unlink()
    assert again is not None
    assert again.file.read_bytes() == once.file.read_bytes()


def test_a_goal_adds_a_stage_that_silences_values(dense: str, photos: Path, tmp_path: Path) -> None:
    busy = distill(dense, [photos], tmp_path / "a.safetensors")
    rare = distill(dense, [photos], tmp_path / "b.safetensors", goal=0.4)
    assert busy is not None
    assert rare is not None
    points = ("attention_in", "v", "readout", "mlp_in")
    before, after = (
        np.mean([result.summaries[list(result.summaries)[-1]]["activity"][p] for p in points])
        for result in (busy, rare)
    )
    assert after < before


def test_a_timm_like_module_is_taken_from_memory(photos: Path, tmp_path: Path) -> None:
    timm = pytest.importorskip("timm", exc_type=ImportError)
    model = timm.models.vision_transformer.VisionTransformer(
        img_size=32, patch_size=8, embed_dim=64, depth=2, num_heads=1, num_classes=5
    )
    result = distill(model, [photos], tmp_path / "m.safetensors")
    assert result is not None
    assert Session(result.file).config.classes == 5


def test_unreadable_images_are_reported_and_left_out(dense: str, photos: Path, tmp_path: Path) -> None:
    bad = photos / "0" / "bad.png"
    bad.write_bytes(b"no image")
    lines: list[str] = []
    distill(dense, [photos], tmp_path / "m.safetensors", report=lambda step, text: lines.append(text))
    bad.unlink()
    assert any("left out" in line and "bad.png" in line for line in lines)
    listed = load_list(tmp_path / "m_distill" / "images.json")
    assert all(path.name != "bad.png" for path in (*listed.train.paths, *listed.held_aside.paths))


def test_minutes_decide_the_steps() -> None:
    seconds = {"blocks": 2.0, "whole": 3.0}
    assert module._steps(["blocks", "whole"], seconds, None) == {"blocks": 12, "whole": 6}
    steps = module._steps(["blocks", "whole"], seconds, 20)
    assert sum(steps[name] * seconds[name] for name in steps) == pytest.approx(20 * 60, rel=0.01)
    # A short time goes to the first stage alone.
    assert list(module._steps(["blocks", "whole"], seconds, 2)) == ["blocks"]


def test_folders_without_images_and_other_choices_are_refused(dense: str, photos: Path, tmp_path: Path) -> None:
    with pytest.raises(LapisError, match="is not a folder"):
        find_images([tmp_path / "missing"])
    with pytest.raises(LapisError, match="holds no images"):
        find_images([tmp_path])
    assert distill(dense, [photos], tmp_path / "m.safetensors") is not None
    with pytest.raises(LapisError, match="another minutes"):
        distill(dense, [photos], tmp_path / "m.safetensors", minutes=3)
    with pytest.raises(LapisError, match="3 class names"):
        distill(dense, [photos], tmp_path / "n.safetensors", class_names=("a", "b", "c"))
