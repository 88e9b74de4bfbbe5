"""What recipes need of GPUs is calculated, and pages and recipes say what the calculation says."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace

import pytest

from lapis.bench.activations import calculated, linear_weights
from lapis.bench.needs import memory_gb, needs, parameters, training_hours
from lapis.bench.roofline import GPUS
from lapis.cli import main
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK, LapisError
from lapis.nn import LapisViT
from lapis.train import recipes
from tests.networks import small_config
from tools import gpu_needs

BASE = recipes.load("imagenet_base")


@pytest.mark.parametrize("name", ["roofline", "needs"])
def test_the_page_shows_what_is_calculated_today(name: str) -> None:
    assert gpu_needs.shown(name) == gpu_needs.TABLES[name](), "run python tools/gpu_needs.py"


def test_the_page_shows_the_memory_of_every_model() -> None:
    # Counting large networks takes half a minute; test_activations.py finds that the count equals the calculation.
    assert gpu_needs.shown("activations") == gpu_needs.memory_table(calculated), "run python tools/gpu_needs.py"


@pytest.mark.parametrize("name", gpu_needs.imagenet_recipes())
def test_a_recipe_of_imagenet_says_what_it_needs(name: str) -> None:
    text = importlib.import_module(f"lapis.train.recipes.{name}").__doc__ or ""
    assert gpu_needs.needs_line(name) in text, "run python tools/gpu_needs.py"


def test_parameters_are_those_of_the_network() -> None:
    config = small_config(width=24, classes=7, weight_bits=32)
    real = sum(p.numel() for name, p in LapisViT(config).named_parameters() if name.endswith(("weight", "bias")))
    assert parameters(config) == pytest.approx(real, rel=0.06)  # norms and position tables
    assert linear_weights(config) == sum(
        p.numel() for name, p in LapisViT(config).named_parameters() if name.startswith("blocks.0.") and p.ndim == 2
    )


def test_memory_is_the_sum_of_its_parts() -> None:
    saved = calculated(BASE.model, "bf16", False)
    one, two = (memory_gb(replace(BASE, optim=replace(BASE.optim, batch=batch)), 1, False) for batch in (1, 2))
    assert two - one > saved.per_image / 1e9
    assert one > 1.5 + 16 * parameters(BASE.model) / 1e9
    assert memory_gb(BASE, 2, True) < memory_gb(BASE, 2, False)


def test_hours_are_shared_and_computing_again_takes_a_third_more_at_most() -> None:
    for gpu in GPUS:
        alone = training_hours(BASE, gpu, 1, False)
        assert training_hours(BASE, gpu, 4, False) == pytest.approx(alone / 4)
        assert alone < training_hours(BASE, gpu, 1, True) < 1.34 * alone


def test_a_recipe_that_is_not_calculated_says_so() -> None:
    with pytest.raises(LapisError, match="with a teacher"):
        needs(recipes.load("cifar10_small"), 1)
    with pytest.raises(LapisError, match="does not split over 3 GPUs"):
        needs(BASE, 3)


def test_the_command_calculates_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--set", "model.depth=1", "--set", "model.image_size=32", "--count"]
    assert main(["bench", "needs", "imagenet_base", "--gpus", "4", "--json", *small]) == EXIT_OK
    report = json.loads(capsys.readouterr().out)
    assert report["calculated"] is True
    assert [row["gpus"] for row in report["rows"]] == [4] * len(GPUS)
    assert report["plain"]["counted_bytes"] == pytest.approx(report["plain"]["calculated_bytes"], rel=0.02)
    assert main(["bench", "needs", "imagenet_base"]) == EXIT_OK
    out = capsys.readouterr().out
    assert "a calculation, not a measurement" in out
    assert "2 " in out
    assert main(["bench", "needs", "smoke"]) == EXIT_BAD_INPUT
    assert "use one of the recipes of ImageNet" in capsys.readouterr().err
