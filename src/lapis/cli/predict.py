"""`lapis predict`: classify images with a deployed network in integers."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import click

from lapis.cli.options import json_option
from lapis.errors import LapisError
from lapis.runtime import Session

BATCH = 32


@click.command()
@click.argument("model")
@click.argument("images", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--top", default=5, show_default=True, type=click.IntRange(1), help="Classes shown per image.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1, 256), help="CPU threads.")
@click.option("--numpy", "plain", is_flag=True, help="Do not use the native library: the same answers, slower.")
@json_option
def command(model: str, images: tuple[Path, ...], top: int, threads: int, plain: bool, as_json: bool) -> None:
    """Classify IMAGES. A packed MODEL runs without torch; a run or a checkpoint is converted first.

    \b
    Example:
      lapis predict model.safetensors photo.jpg --top 3
    """
    missing = [image for image in images if not image.is_file()]
    if missing:
        raise LapisError(f"no image at {missing[0]}; give files such as photo.jpg")
    session = Session(model, threads=threads, native=not plain)
    started = time.perf_counter()
    answers = [
        answer
        for start in range(0, len(images), BATCH)
        for answer in session.predict(list(images[start : start + BATCH]), k=top)
    ]
    seconds = time.perf_counter() - started
    if as_json:
        found = [
            {"image": str(image), "classes": [dataclasses.asdict(one) for one in answer]}
            for image, answer in zip(images, answers, strict=True)
        ]
        click.echo(json.dumps({"model": model, "executor": session.executor, "seconds": seconds, "answers": found}))
        return
    for image, answer in zip(images, answers, strict=True):
        click.echo(str(image))
        width = max(len(one.name) for one in answer)
        for one in answer:
            click.echo(f"  {one.name:{width}}  {100 * one.score:5.1f} %")
    how = f"{session.executor}, {threads} thread{'s' * (threads > 1)}"
    click.echo(f"{seconds / len(images) * 1e3:.1f} ms per image: {len(images)} in all, {how}")
