"""Recipes by name, one file per recipe. Its docstring gives the command, the expected accuracy and ours."""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module

from lapis.config import nearest
from lapis.errors import LapisError
from lapis.train.recipe import Recipe


def names() -> list[str]:
    """Every recipe."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def load(name: str) -> Recipe:
    """The recipe with this name; the error for an unknown name suggests the nearest."""
    if name not in names():
        raise LapisError(f"unknown recipe {name!r}; {nearest(name, names())}recipes: {', '.join(names())}")
    recipe: Recipe = import_module(f"{__name__}.{name}").RECIPE
    return recipe


def summary(name: str) -> str:
    """The first line of a recipe's file."""
    return _documentation(name).strip().splitlines()[0]


def processes(name: str) -> int:
    """How many processes, each with its GPU, the command in a recipe's file starts."""
    asked = re.search(r"--nproc-per-node (\d+)", _documentation(name))
    return int(asked[1]) if asked else 1


def _documentation(name: str) -> str:
    load(name)
    return import_module(f"{__name__}.{name}").__doc__ or ""
