"""Recipes are records, and change by name only."""

from __future__ import annotations

import pytest

from lapis._util.overrides import keys
from lapis.config import CodingByPoint
from lapis.deploy.network import check_deployable
from lapis.errors import LapisError
from lapis.train import recipes
from lapis.train.recipe import differences

SMOKE = recipes.load("smoke")


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_opens_with_its_command_and_figures(name: str) -> None:
    recipe = recipes.load(name)
    text = recipes.documentation(name)
    assert recipe.name == name
    assert f"train {name}" in text
    for heading in ("Command:", "Expected:"):
        assert heading in text
    # The paper's were not run here.
    assert ("Ours:" in text) == (name == "smoke" or "tiny" in name)


def test_recipes_of_cifar_choose_on_training_images_that_they_set_aside() -> None:
    found = {name: recipes.load(name).data for name in recipes.names() if name.startswith("cifar")}
    assert len(found) > 10
    assert {(data.validate, data.evaluated) for data in found.values()} == {(5000, "validation")}
    assert SMOKE.data.evaluated == "test"
    with pytest.raises(LapisError, match=r"dataset=folder holds images out by itself; leave data\.validate at 0"):
        SMOKE.with_overrides(["data.dataset=folder", "data.validate=5"])


@pytest.mark.parametrize("name", ["cifar10_small", "cifar100_small"])
def test_cifar_recipes_hold_the_numbers_of_the_paper(name: str) -> None:
    recipe = recipes.load(name)
    optim, distill = recipe.optim, recipe.distill
    assert (optim.epochs, optim.batch, optim.lr, optim.weight_decay, optim.warmup_epochs) == (100, 128, 1e-4, 0.05, 5)
    assert (distill.ce, distill.logit, distill.feature, distill.temperature) == (0.5, 0.5, 0.5, 4.0)
    assert distill.student_blocks == (2, 5, 8, 11)
    assert distill.teacher_blocks == (5, 11, 17, 23)
    assert (recipe.model.window, recipe.model.width, recipe.model.image_size) == (15, 384, 224)
    assert recipe.model.coding == CodingByPoint.all("unsigned")


@pytest.mark.parametrize(
    ("name", "epochs", "batch", "lr", "window"),
    [("imagenet_large", 60, 162, 8.5e-5, 20), ("imagenet_base", 50, 256, 1.3e-4, 15)],
)
def test_imagenet_recipes_hold_the_numbers_of_the_paper(
    name: str, epochs: int, batch: int, lr: float, window: int
) -> None:
    recipe = recipes.load(name)
    assert (recipe.optim.epochs, recipe.optim.batch, recipe.optim.lr) == (epochs, batch, lr)
    assert (recipe.model.window, recipe.model.row_scale, recipe.model.weight_bits) == (window, "exact", 32)
    for stage, bits in (("_pow2", 32), ("_w6", 6)):
        recovery = recipes.load(name + stage)
        optim = recovery.optim
        assert (optim.epochs, optim.batch, optim.lr, optim.warmup_epochs) == (10, 108, 2e-5, 0)
        model = recovery.model
        assert (model.row_scale, model.readout, model.weight_bits) == ("pow2", "spikes", bits)
    assert recipes.load(f"{name}_w6").augment.mix_prob == 0.1


def test_every_deployed_stage_can_run_in_integers() -> None:
    deployed = [name for name in recipes.names() if name.endswith("_w6")]
    assert len(deployed) >= 5
    for name in deployed:
        check_deployable(recipes.load(name).model)
        assert recipes.load(name).model.weight_bits == 6


def test_overrides_reach_every_depth_with_the_right_type() -> None:
    changed = SMOKE.with_overrides(
        [
            "optim.lr=1e-3",
            "model.coding.qk=signed",
            "distill.student_blocks=0,1",
            "distill.teacher_blocks=2,3",
            "seed=4",
        ]
    )
    assert changed.optim.lr == 1e-3
    assert changed.model.coding == CodingByPoint(qk="signed")
    assert changed.distill.student_blocks == (0, 1)
    assert changed.seed == 4
    assert SMOKE.with_overrides(["model.coding=offset"]).model.coding == CodingByPoint.all("offset")
    assert SMOKE.with_overrides(["model.quantize=false", "model.relation=dot"]).model.quantize is False


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("optim.learning_rate=1", r"unknown setting 'optim\.learning_rate'"),
        ("optim.epoch=1", r"did you mean 'optim\.epochs'"),
        ("model.windw=3", r"did you mean 'model\.window'"),
        ("model.coding.qkk=signed", r"did you mean 'model\.coding\.qk'"),
        ("optim.lr.x=3", "unknown setting"),
        ("name=other", "unknown setting 'name'"),
        ("optim=3", "is a group"),
        ("optim.lr", "is not NAME=VALUE"),
        ("optim.lr=fast", "expected float"),
        ("optim.batch=2.5", "expected int"),
        ("optim.batch=0", "at least 1"),
        ("optim.epochs=0", "above 0"),
        ("optim.precision=fp8", "use fp32, bf16"),
        ("model.window=0", r"outside 1\.\.63"),
        ("data.dataset=mnist", "use cifar10"),
        ("augment.flip=2", "at least 0 and at most 1"),
        ("optim.average=1", "at most"),
        ("stage=heads", "use labels, blocks, whole"),
    ],
)
def test_a_bad_override_says_what_is_allowed(setting: str, message: str) -> None:
    with pytest.raises(LapisError, match=message):
        SMOKE.with_overrides([setting])


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(LapisError, match="did you mean 'cifar10_tiny'"):
        recipes.load("cifar10_tinny")


def test_keys_and_differences_name_every_value() -> None:
    other = SMOKE.with_overrides(["optim.lr=0.5", "model.coding.v=offset"])
    assert keys(SMOKE)["optim.batch"] == SMOKE.optim.batch
    assert differences(SMOKE.to_dict(), SMOKE.to_dict()) == []
    found = differences(SMOKE.to_dict(), other.to_dict())
    assert [line.split(":")[0] for line in found] == ["model.coding.v", "optim.lr"]
