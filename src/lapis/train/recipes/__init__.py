"""Recipes by name: functions whose docstring gives the command, the expected accuracy, and ours if it was run.

Most are another recipe with a few settings changed; `load` gives each the name of its function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import getdoc, isfunction

from lapis.config import nearest
from lapis.errors import LapisError
from lapis.train.recipe import Recipe
from lapis.train.recipes import paper, tiny

# `lapis.cli.completion` finds the same names in the source, without loading torch.
_RECIPES: dict[str, Callable[[], Recipe]] = {
    name: function
    for module in (paper, tiny)
    for name, function in vars(module).items()
    if isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
}


def names() -> list[str]:
    """Every recipe."""
    return sorted(_RECIPES)


def load(name: str) -> Recipe:
    """The recipe with this name; the error for an unknown name suggests the nearest."""
    if name not in _RECIPES:
        raise LapisError(f"unknown recipe {name!r}; {nearest(name, names())}recipes: {', '.join(names())}")
    return replace(_RECIPES[name](), name=name)


def documentation(name: str) -> str:
    """What a recipe says about itself: a summary, the command, the expected accuracy, and ours."""
    return getdoc(_RECIPES[name]) or ""
