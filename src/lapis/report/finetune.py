"""The report of `lapis finetune`: what the new network gets right and wrong, and what it costs, as one HTML file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

import lapis
from lapis._util.metrics import Accuracy, interval95
from lapis.config import LapisConfig
from lapis.data.images import FileImages, Images, Labels
from lapis.energy import estimate
from lapis.preprocess import Pixels, Preprocess
from lapis.report.page.page import data_url, energy_rows, fill, int8_ratio, write_html
from lapis.runtime.accuracy import evaluate_session
from lapis.runtime.session import Session

# With more classes a matrix cannot be read; the page then lists the commonest mistakes only.
MATRIX_CLASSES = 40
SHOWN_CLASSES = 40
MISTAKES = 12
CONFUSED = 12
PICTURE_SIDE = 144


@dataclass(frozen=True)
class Answers:
    """Answers to the images `indices` (n,): `shares` (n, K), the softmax of the logits; `labels` (n,) are the truth."""

    evaluation: Accuracy
    indices: npt.NDArray[np.int64]
    labels: Labels
    shares: npt.NDArray[np.float64]

    @property
    def predicted(self) -> Labels:
        """The likeliest class of each image, the lower of equal ones."""
        best: Labels = self.shares.argmax(axis=1)
        return best

    @property
    def confusion(self) -> npt.NDArray[np.int64]:
        """counts[truth, answer], (K, K)."""
        classes = self.shares.shape[1]
        counts = np.zeros((classes, classes), np.int64)
        np.add.at(counts, (self.labels, self.predicted), 1)
        return counts

    def worst(self, count: int) -> list[int]:
        """The places in `indices` of the wrong answers that the network was surest of, worst first."""
        wrong = np.flatnonzero(self.predicted != self.labels)
        order = np.argsort(-self.shares[wrong, self.predicted[wrong]], kind="stable")
        return [int(place) for place in wrong[order[:count]]]

    def confused(self, count: int) -> list[tuple[int, int, int]]:
        """(truth, answer, images) of the commonest mistakes."""
        counts = self.confusion
        np.fill_diagonal(counts, 0)
        order = np.argsort(-counts, axis=None, kind="stable")[:count]
        pairs = [(*(int(place) for place in np.unravel_index(index, counts.shape)),) for index in order]
        return [(truth, answer, int(counts[truth, answer])) for truth, answer in pairs if counts[truth, answer]]


def answer_images(
    session: Session, images: Images, watched: int, progress: Callable[[int, int], None] | None = None
) -> Answers:
    """Run a session on images; spikes are counted on the first `watched` of them."""
    chosen: list[int] = []
    rows: list[npt.NDArray[np.float64]] = []

    def note(indices: list[int], logits: npt.NDArray[np.float32]) -> None:
        chosen.extend(indices)
        exponential = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
        rows.append(exponential / exponential.sum(axis=1, keepdims=True))

    evaluation = evaluate_session(session, images, images.labels, progress=progress, watched=watched, answered=note)
    places = np.asarray(chosen, np.int64)
    return Answers(evaluation, places, images.labels[places], np.concatenate(rows))


@dataclass(frozen=True)
class FineTuneResults:
    """The held-out images with the answers to them, and how the network was made.

    `stages` has one table of results per stage; `about` is what else the page and JSON say of the plan.
    """

    file: Path
    config: LapisConfig
    preprocess: Preprocess
    held_out: FileImages
    answers: Answers
    stages: list[dict[str, Any]]
    about: dict[str, Any]


def finetune_facts(results: FineTuneResults) -> dict[str, Any]:
    """The results as a table for JSON, without pictures."""
    answers, names = results.answers, results.held_out.classes
    confusion = answers.confusion
    counts, right = confusion.sum(axis=1), confusion.diagonal()
    evaluation, tally = answers.evaluation, answers.evaluation.tally
    return {
        "version": lapis.__version__,
        "file": str(results.file),
        "bytes": results.file.stat().st_size,
        "window": results.config.window,
        "image_size": results.config.image_size,
        "weight_bits": results.config.weight_bits,
        **results.about,
        "stages": results.stages,
        "accuracy": evaluation.as_dict(),
        "interval95": interval95(evaluation.top1_correct, evaluation.images),
        "commonest_class": float(100 * counts.max() / counts.sum()),
        "classes": [
            {"name": name, "images": int(count), "right": int(hits)}
            for name, count, hits in zip(names, counts, right, strict=True)
        ],
        "confusion": confusion.tolist() if len(names) <= MATRIX_CLASSES else None,
        "confused": [
            {"label": names[truth], "answer": names[answer], "images": count}
            for truth, answer, count in answers.confused(CONFUSED)
        ],
        "mistakes": [_mistake(results, place) for place in answers.worst(MISTAKES)],
        "activities": tally.activities(),
        "measured": tally.images,
        "energy": energy_rows(estimate(results.config, tally)),
        "int8_ratio": int8_ratio(results.config, tally),
    }


def write_finetune_page(path: Path, results: FineTuneResults) -> dict[str, Any]:
    """Write the page and return its facts."""
    shown = finetune_facts(results)
    pictures = [
        data_url(small_picture(results.preprocess.resize(results.held_out[int(results.answers.indices[place])])))
        for place in results.answers.worst(MISTAKES)
    ]
    data = shown | {"pictures": pictures, "shown_classes": SHOWN_CLASSES}
    title = f"Lapis finetune · {results.about['name']}"
    write_html(path, fill("finetune", title, data, ("dom.js", "charts.js", "finetune.js")))
    return shown


def _mistake(results: FineTuneResults, place: int) -> dict[str, Any]:
    """One wrong answer: the file, what it is, what the network took it for, and its scores of both."""
    answers, names = results.answers, results.held_out.classes
    label, answer = int(answers.labels[place]), int(answers.predicted[place])
    return {
        "file": str(results.held_out.paths[int(answers.indices[place])]),
        "label": names[label],
        "answer": names[answer],
        "score": float(answers.shares[place, answer]),
        "label_score": float(answers.shares[place, label]),
    }


def small_picture(pixels: Pixels) -> Pixels:
    """A picture of a size that a page can hold."""
    image = Image.fromarray(pixels)
    image.thumbnail((PICTURE_SIDE, PICTURE_SIDE), Image.Resampling.BICUBIC)
    return np.asarray(image)
