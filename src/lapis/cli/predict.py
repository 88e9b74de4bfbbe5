"""`lapis predict`: classify images with a deployed network in integers."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from lapis import assets, models
from lapis._util.files import check_target, csv_text, write_text
from lapis._util.progress import Display
from lapis._util.terminal import echo, escape_control
from lapis.cli.completion import MODEL
from lapis.cli.options import PATH, force_option, json_option, low_memory_option, quiet_option, show, split_model
from lapis.data.image_sources import ImageSource, find_sources
from lapis.errors import EXIT_BAD_INPUT, EXIT_INCOMPLETE, EXIT_OK, LapisError
from lapis.runtime import Prediction, Session

# Answers are printed after each batch. Larger ones are hardly faster.
BATCH = 8
COLUMNS = ("image", "rank", "index", "label", "score", "logit", "error")


@dataclass(frozen=True)
class Answer:
    """The classes of one image, best first, or the reason why there are none."""

    image: str
    classes: Sequence[Prediction] = ()
    error: str = ""

    def rows(self) -> list[dict[str, Any]]:
        """One row per class for the CSV; one row with the reason for an image that could not be read."""
        ranked = [{"image": self.image, "rank": rank, **one} for rank, one in enumerate(self.classes, 1)]
        return ranked or [{"image": self.image, "error": self.error}]

    def lines(self, min_score: float) -> list[str]:
        """The answer as people read it; below `min_score` it is none of the classes."""
        names = [escape_control(one.label) for one in self.classes]
        width = max(map(len, names))
        lines = [f"  {name:{width}}  {100 * one.score:5.1f} %" for name, one in zip(names, self.classes, strict=True)]
        none = f"  none of these: no class has {100 * min_score:.0f} %; the likeliest were"
        return [self.image, *([none] if self.classes[0].score < min_score else []), *lines]

    def record(self, min_score: float) -> dict[str, Any]:
        """The answer for JSON; with a least score, it says whether it is below it."""
        none = {"none_of_these": self.classes[0].score < min_score} if min_score else {}
        return {"image": self.image, "classes": [dict(one) for one in self.classes], **none}


@click.command()
@click.argument("words", nargs=-1, type=MODEL, metavar="[MODEL] IMAGES...")
@click.option("--top-k", default=5, show_default=True, type=click.IntRange(1), help="Classes shown per image.")
@click.option("--classes", is_flag=True, help="List the classes that the network knows, and stop.")
@click.option(
    "--min-score",
    type=click.FloatRange(0, 1),
    show_default="the file's, 0 with --json",
    help='Below it: "none of these".',
)
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1, 256), help="CPU threads.")
@low_memory_option
@click.option("--numpy", "plain", is_flag=True, help="Without the native library: same answers, slower.")
@click.option("--csv", type=PATH, help="Also write this CSV file, a row per class.")
@force_option
@quiet_option
@json_option
def command(
    words: tuple[str, ...],
    top_k: int,
    classes: bool,
    min_score: float | None,
    threads: int,
    low_memory: bool,
    plain: bool,
    csv: Path | None,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Classify IMAGES with MODEL, a packed file, a name or a run; without one, with the packaged network.

    IMAGES are files, folders, patterns such as 'photos/*.jpg', - for standard input, or sample:N for a packaged
    CIFAR-10 image. If some cannot be read, the others are answered and the exit code is 3.

    \b
    Example:
      lapis predict sample:7 --top-k 3
    """
    model, images = split_model(words)
    if classes:
        opened = models.load(model)
        names = opened.class_names or [str(index) for index in range(opened.config.classes)]
        show({"model": model, "classes": names}, [f"{index:4} {name}" for index, name in enumerate(names)], as_json)
        return EXIT_OK
    if not images:
        raise LapisError(f"no image was given to classify with {model}; name files, folders, or sample:0 to try it")
    sources = find_sources(images)
    check_target(csv, "--csv", "table", [models.find(model), *(source.path for source in sources)], force)
    session = Session(model, threads, not plain, low_memory)
    if min_score is None:
        min_score = 0.0 if as_json else assets.min_score(model) or 0.0
    started, answers, reader_left = time.perf_counter(), [], False
    hidden = quiet or not sys.stderr.isatty() or len(sources) <= BATCH
    with Display("predict", len(sources), quiet=hidden) as display:
        for answer in _answers(session, sources, top_k):
            answers.append(answer)
            try:
                if answer.error:
                    echo(f"lapis: error: {answer.error}", error=True)
                elif not as_json and not reader_left:
                    echo(*answer.lines(min_score))
            except BrokenPipeError:
                # The file is written all the same.
                if csv is None:
                    raise
                reader_left = True
            display.update(len(answers))
    seconds = time.perf_counter() - started
    unreadable = [{"image": answer.image, "error": answer.error} for answer in answers if answer.error]
    answered = len(answers) - len(unreadable)
    written = csv if answered else None
    if written is not None:
        write_text(written, csv_text([row for answer in answers for row in answer.rows()], COLUMNS))
    if reader_left:
        raise BrokenPipeError
    if as_json:
        record = {
            "model": model,
            "executor": session.executor,
            "seconds": seconds,
            "answers": [answer.record(min_score) for answer in answers if not answer.error],
            "unreadable": unreadable,
            "written": None if written is None else str(written),
        }
        echo(json.dumps(record))
    elif answered:
        how = f"{session.executor}, {threads} thread{'s' * (threads > 1)}"
        failed = f"; {len(unreadable)} could not be read" if unreadable else ""
        echo(f"{seconds / answered * 1e3:.1f} ms per image: {answered} in all, {how}{failed}")
        if written is not None:
            echo(f"wrote {written} ({written.stat().st_size} bytes)")
    if not unreadable:
        return EXIT_OK
    return EXIT_INCOMPLETE if answered else EXIT_BAD_INPUT


def _answers(session: Session, sources: Sequence[ImageSource], top_k: int) -> Iterator[Answer]:
    """An answer per image, in order, as soon as its batch is done."""
    for start in range(0, len(sources), BATCH):
        batch = sources[start : start + BATCH]
        pixels, errors = {}, {}
        for index, source in enumerate(batch):
            try:
                pixels[index] = source.read()
            except LapisError as error:
                errors[index] = click.format_filename(str(error))
        ranked = dict(zip(pixels, session.predict_each([*pixels.values()], top_k) if pixels else (), strict=True))
        for index, source in enumerate(batch):
            # A name may hold bytes that are no text; no terminal and no file could take them.
            yield Answer(click.format_filename(source.name), ranked.get(index, ()), errors.get(index, ""))
