"""Completion in the shell: the values that arguments and options may take, beside the files that the shell finds.

Every press of the tab key starts Python anew, so nothing here may load torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

import lapis
from lapis import assets
from lapis.config import PRESETS


class Named(click.ParamType):  # type: ignore[type-arg]
    """Any text; the tab key offers known names, and files where `files` says so."""

    def __init__(self, name: str, known: Callable[[], Iterable[str]], files: bool = False) -> None:
        self.name, self.known, self.files = name, known, files

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = [CompletionItem(name) for name in self.known() if name.startswith(incomplete)]
        # Files come first: bash forgets the names that stand before this item.
        return [CompletionItem(incomplete, type="file"), *names] if self.files else names


def recipe_names() -> list[str]:
    """The names in the files of the recipes; `lapis.train.recipes` knows them too, but loads torch."""
    files = (Path(lapis.__file__).parent / "train" / "recipes").glob("[!_]*.py")
    pattern = re.compile(r"^(?:def )?([a-z]\w*)(?:\(| = _recovery)", re.MULTILINE)
    return sorted(name for file in files for name in pattern.findall(file.read_text("utf-8")))


MODEL = Named("model", assets.names, files=True)
MODEL_OR_PRESET = Named("model", lambda: [*assets.names(), *sorted(PRESETS)], files=True)
RECIPE = Named("recipe", recipe_names)
