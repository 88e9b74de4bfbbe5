"""A training run that takes a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lapis.train import recipes
from lapis.train.distributed import Processes
from lapis.train.loop import train
from lapis.train.recipe import Recipe

# Eight steps of 16 images with two tests, everything logged.
SETTINGS = (
    "model.depth=2", "model.width=32", "model.heads=2", "model.patch_size=8", "data.limit=64", "data.test_limit=24",
    "data.calibrate=16", "optim.batch=16", "optim.epochs=2", "optim.warmup_epochs=0.5", "checkpoint.log_steps=1",
    "checkpoint.evaluate_epochs=1",
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Sums are only the same bit for bit on the same number of threads; a module's own fixtures train too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def micro_settings() -> tuple[str, ...]:
    return SETTINGS


@pytest.fixture(scope="session")
def alone() -> Processes:
    return Processes(0, 1, torch.device("cpu"))


@pytest.fixture(scope="session")
def micro() -> Callable[..., Recipe]:
    """The smoke recipe, made smaller still, with settings of a test's own."""

    def make(*settings: str) -> Recipe:
        return recipes.load("smoke").with_overrides([*SETTINGS, *settings])

    return make


@pytest.fixture(scope="session")
def run_micro(alone: Processes) -> Callable[..., dict[str, Any]]:
    """Train a recipe alone and in silence."""

    def run(recipe: Recipe, out: Path, resume: bool = False) -> dict[str, Any]:
        return train(recipe, None, out, alone, resume=resume, quiet=True)

    return run
