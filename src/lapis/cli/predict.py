"""`lapis predict`: classify images with a deployed network in integers."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from lapis._util.files import check_target, csv_text, write_text
from lapis._util.machine import thread_count
from lapis._util.progress import Display
from lapis._util.terminal import echo, escape_control
from lapis.cli.completion import MODEL
from lapis.cli.options import json_option, low_memory_option, quiet_option
from lapis.data.image_sources import ImageSource, find_sources
from lapis.errors import EXIT_BAD_INPUT, EXIT_INCOMPLETE, EXIT_OK, LapisError
from lapis.runtime import Prediction, Session

# Answers are printed after each batch. Larger ones are hardly faster.
BATCH = 8
COLUMNS = ("image", "rank", "index", "name", "score", "logit", "error")


@dataclass(frozen=True)
class Answer:
    """The classes of one image, best first, or the reason why there are none."""

    image: str
    classes: Sequence[Prediction] = ()
    error: str = ""

    def rows(self) -> list[dict[str, Any]]:
        """One row per class for the CSV; one row with the reason for an image that could not be read."""
        if self.error:
            return [{"image": self.image, "error": self.error}]
        return [
            {"image": self.image, "rank": rank, **dataclasses.asdict(one)} for rank, one in enumerate(self.classes, 1)
        ]


@click.command()
@click.argument("model", type=MODEL)
@click.argument("images", nargs=-1, required=True, type=click.Path(allow_dash=True))
@click.option("--top", default=5, show_default=True, type=click.IntRange(1), help="Classes shown per image.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1, 256), help="CPU threads.")
@low_memory_option
@click.option("--numpy", "plain", is_flag=True, help="Do not use the native library: the same answers, slower.")
@click.option(
    "--csv", type=click.Path(path_type=Path), help="Also write the answers to this CSV file, a row per class."
)
@quiet_option
@json_option
def command(
    model: str,
    images: tuple[str, ...],
    top: int,
    threads: int,
    low_memory: bool,
    plain: bool,
    csv: Path | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Classify IMAGES. A packed MODEL runs without torch; a run or a checkpoint is converted first.

    IMAGES are files, folders (with the folders below them), patterns such as 'photos/*.jpg', - for the bytes of one
    image on standard input, or sample:N for one of the packaged CIFAR-10 images. An image that cannot be read is
    reported and the others are answered; the exit code is then 3.

    \b
    Example:
      lapis predict model.safetensors photo.jpg --top 3
      lapis predict lapis_tiny_cifar10 photos sample:7 --csv answers.csv
    """
    check_target(csv, "--csv")
    session, pictures = Session(model, threads, not plain, low_memory), find_sources(images)
    started, answers = time.perf_counter(), []
    hidden = quiet or not sys.stderr.isatty() or len(pictures) <= BATCH
    with Display("predict", len(pictures), quiet=hidden) as display:
        for answer in _answers(session, pictures, top):
            answers.append(answer)
            if answer.error:
                echo(f"lapis: error: {answer.error}", error=True)
            elif not as_json:
                echo(*_lines(answer))
            display.update(len(answers))
    seconds = time.perf_counter() - started
    unreadable = [answer for answer in answers if answer.error]
    answered = len(answers) - len(unreadable)
    written = csv if answered else None
    if written is not None:
        write_text(written, csv_text([row for answer in answers for row in answer.rows()], COLUMNS))
    if as_json:
        record = {"model": model, "executor": session.executor, "seconds": seconds, **_lists(answers)}
        echo(json.dumps(record | {"written": None if written is None else str(written)}))
    elif answered:
        how = f"{session.executor}, {thread_count(threads)}"
        failed = f"; {len(unreadable)} could not be read" if unreadable else ""
        echo(f"{seconds / answered * 1e3:.1f} ms per image: {answered} in all, {how}{failed}")
        if written is not None:
            echo(f"wrote {written} ({written.stat().st_size} bytes)")
    if not unreadable:
        return EXIT_OK
    return EXIT_INCOMPLETE if answered else EXIT_BAD_INPUT


def _answers(session: Session, pictures: Sequence[ImageSource], top: int) -> Iterator[Answer]:
    """An answer per picture, in order, as soon as its batch is done."""
    for start in range(0, len(pictures), BATCH):
        batch = pictures[start : start + BATCH]
        pixels, errors = {}, {}
        for index, picture in enumerate(batch):
            try:
                pixels[index] = picture.read()
            except LapisError as error:
                errors[index] = click.format_filename(str(error))
        ranked = dict(zip(pixels, session.predict(list(pixels.values()), k=top), strict=True)) if pixels else {}
        for index, picture in enumerate(batch):
            # A name may hold bytes that are no text; no terminal and no file could take them.
            yield Answer(click.format_filename(picture.name), ranked.get(index, ()), errors.get(index, ""))


def _lines(answer: Answer) -> list[str]:
    names = [escape_control(one.name) for one in answer.classes]
    width = max(map(len, names))
    shares = (100 * one.score for one in answer.classes)
    return [answer.image, *(f"  {name:{width}}  {share:5.1f} %" for name, share in zip(names, shares, strict=True))]


def _lists(answers: Sequence[Answer]) -> dict[str, Any]:
    return {
        "answers": [
            {"image": answer.image, "classes": [dataclasses.asdict(one) for one in answer.classes]}
            for answer in answers
            if not answer.error
        ],
        "unreadable": [{"image": answer.image, "error": answer.error} for answer in answers if answer.error],
    }
