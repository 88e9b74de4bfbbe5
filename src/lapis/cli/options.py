"""Options that several commands share, so that they mean the same everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from lapis._util.terminal import echo
from lapis.data.image_sources import names_images
from lapis.models import DEFAULT_MODEL, require_torch

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
PATH = click.Path(path_type=Path)

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
force_option = click.option("--force", is_flag=True, help="Replace a file of another kind.")
device_option = click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda.")
low_memory_option = click.option("--low-memory", is_flag=True, help="Keep weights small: same answers, slower.")
torch_threads_option = click.option("--threads", type=click.IntRange(1), help="CPU threads.")


def data_option(text: str) -> Decorator:
    """The folder with images, which LAPIS_DATA may also name."""
    return click.option("--data", type=PATH, envvar="LAPIS_DATA", help=f"{text} [LAPIS_DATA].")


def images_option(default: int) -> Decorator:
    return click.option(
        "-n", "--images", "count", type=click.IntRange(1), default=default, show_default=True, help="Images to run."
    )


def show(record: dict[str, Any], lines: Sequence[str], as_json: bool) -> None:
    """Print a result: one JSON object, or the lines for people."""
    echo(*([json.dumps(record)] if as_json else lines))


def step_printer(hidden: bool) -> Callable[[str, str], None]:
    """What prints the steps of a long command, each with its name before the text."""
    return lambda step, text: None if hidden else echo(f"{step:<9} {text}")


def with_torch_threads(threads: int | None) -> None:
    """Load torch with this many threads; the error says how to install torch if it is missing."""
    require_torch("this")
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def split_model(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The model and the images that the words of a command name; without a model, the default one."""
    if not words or names_images(words[0]):
        return DEFAULT_MODEL, words
    return words[0], words[1:]
