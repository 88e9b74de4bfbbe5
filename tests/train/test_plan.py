"""The stages from any start to a deployed network, and how long they train."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lapis import models
from lapis.config import DEPLOYED_BITS, FLOAT_WEIGHTS, preset
from lapis.data.class_folders import SplitImages, open_class_folders
from lapis.deploy.network import check_deployable
from lapis.errors import LapisError
from lapis.nn import save_network
from lapis.train import plan
from lapis.train.plan import Choices, make_plan, stage_configs, usual_batch, usual_epochs
from tests.networks import small_config, small_model

TINY = preset("lapis_tiny")


@pytest.fixture
def images(tmp_path: Path) -> SplitImages:
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(50):
            Image.new("RGB", (4, 4)).save(tmp_path / "images" / name / f"{number}.png")
    return open_class_folders(tmp_path / "images")


@pytest.fixture
def start(tmp_path: Path) -> models.Model:
    save_network(tmp_path / "dense.safetensors", small_model(small_config().dense())[0])
    return models.load(tmp_path / "dense.safetensors")


@given(count=st.integers(8, 2_000_000))
def test_small_sets_are_seen_often_and_work_is_bounded(count: int) -> None:
    epochs, batch = usual_epochs(count, 128), usual_batch(count)
    assert 1 <= epochs <= plan.MOST_EPOCHS
    assert epochs * count <= max(plan.MOST_SEEN * 1.5, count)
    assert epochs >= usual_epochs(2 * count, 128)
    assert epochs >= usual_epochs(count, 224)
    assert batch <= count
    assert batch & (batch - 1) == 0
    assert count < 8 * plan.SMALLEST_BATCH or count // batch >= plan.STEPS_PER_EPOCH


@pytest.mark.parametrize(
    ("config", "stages"),
    [
        (TINY.dense(), ["exact", "pow2", "w6"]),
        (TINY, ["exact", "pow2", "w6"]),
        (TINY.replace(relation="gaussian"), ["exact", "pow2", "w6"]),
        (TINY.deployed(FLOAT_WEIGHTS), ["pow2", "w6"]),
        (TINY.deployed(), ["w6"]),
        (TINY.deployed(4), ["w4"]),
    ],
)
def test_the_chain_begins_where_the_start_is_and_ends_deployed(config: object, stages: list[str]) -> None:
    configs = stage_configs(config)  # type: ignore[arg-type]
    assert list(configs) == stages
    last = list(configs.values())[-1]
    check_deployable(last)
    assert last.weight_bits in (DEPLOYED_BITS, 4)


def test_a_deployed_start_is_trained_in_its_own_configuration() -> None:
    config = TINY.deployed().replace(window=20)
    assert stage_configs(config) == {"w6": config}


def test_stages_follow_each_other_and_shorten(tmp_path: Path, images: SplitImages, start: models.Model) -> None:
    made = make_plan(tmp_path / "images", images, start, tmp_path / "out", "own", Choices(epochs=8.0))
    assert [recipe.start for recipe in made.stages.values()] == [
        str(tmp_path / "out" / name) for name in ("0_start/start.safetensors", "1_exact", "2_pow2")
    ]
    assert [recipe.optim.epochs for recipe in made.stages.values()] == [8.0, 2.0, 4.0]
    assert all(recipe.checkpoint.evaluate_epochs == recipe.optim.epochs for recipe in made.stages.values())
    assert {recipe.model.classes for recipe in made.stages.values()} == {2}
    assert made.steps("exact") == 8 * (80 // made.stages["exact"].optim.batch)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("model.classes=7", "they are counted"),
        ("start=elsewhere", "use --start"),
        ("data.dataset=cifar10", "use --start and the folder"),
        ("optim.batch=81", "exceeds the 80 training images"),
        ("optim.speed=1", "unknown setting"),
    ],
)
def test_a_setting_that_contradicts_the_folder_is_refused(
    tmp_path: Path, images: SplitImages, start: models.Model, setting: str, words: str
) -> None:
    with pytest.raises(LapisError, match=words):
        make_plan(tmp_path / "images", images, start, tmp_path / "out", "own", Choices(settings=(setting,)))


def test_a_large_image_is_trained_in_parts_that_bound_the_memory(
    tmp_path: Path, images: SplitImages, start: models.Model
) -> None:
    made = make_plan(tmp_path / "images", images, start, tmp_path / "out", "own", Choices())
    assert {recipe.optim.accumulate for recipe in made.stages.values()} == {1}
    assert 0.6e9 < made.memory_bytes() < 0.7e9
    large = TINY.replace(image_size=448)
    optim = plan._optim("exact", 1000, 1.0, large)
    part = -(-optim.batch // optim.accumulate)
    assert optim.accumulate > 1
    assert part == 1 or part * plan.bytes_per_image(large) <= 1.1 * plan.STEP_BYTES


def test_a_name_that_no_file_can_have_is_refused_before_training(
    tmp_path: Path, images: SplitImages, start: models.Model
) -> None:
    with pytest.raises(LapisError, match=r"250 bytes.*rename it to at most 240"):
        make_plan(tmp_path / "images", images, start, tmp_path / "out", "n" * 250, Choices())


def test_a_network_named_start_does_not_replace_the_first_weights(
    tmp_path: Path, images: SplitImages, start: models.Model
) -> None:
    made = make_plan(tmp_path / "images", images, start, tmp_path / "out", "start", Choices())
    assert made.out / plan.START_FILE != made.out / f"{made.name}.safetensors"
