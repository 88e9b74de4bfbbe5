"""The report of `lapis distill`: how near the packed network is to its dense source, and what was lost where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import lapis
from lapis.data.images import FileImages
from lapis.preprocess import Preprocess
from lapis.report.finetune import Answers, small_picture
from lapis.report.page.page import data_url, fill, write_html

EXAMPLES = 12


@dataclass(frozen=True)
class DistillResults:
    """Answers of the packed file to the images held aside, and the dense network's `logits` (n, K) of all of them.

    The labels of `held_aside` are the dense network's answers. `stages` has one table of results per stage, the first
    of which is the calibrated network; `about` is what else the page and JSON say.
    """

    file: Path
    preprocess: Preprocess
    held_aside: FileImages
    answers: Answers
    dense_logits: npt.NDArray[np.float32]
    stages: list[dict[str, Any]]
    about: dict[str, Any]


def facts(results: DistillResults) -> dict[str, Any]:
    """The results as a table for JSON, without pictures."""
    evaluation = results.answers.evaluation
    return {
        "version": lapis.__version__,
        "file": str(results.file),
        "bytes": results.file.stat().st_size,
        **results.about,
        "stages": results.stages,
        "agreement": {"images": evaluation.images, "same": evaluation.top1_correct, "top1": evaluation.top1},
        "examples": [_example(results, place) for place in results.answers.worst(EXAMPLES)],
    }


def write_distill_page(path: Path, results: DistillResults) -> dict[str, Any]:
    """Write the page and return its facts."""
    shown = facts(results)
    pictures = [
        data_url(small_picture(results.preprocess.resize(results.held_aside[_index(results, place)])))
        for place in results.answers.worst(EXAMPLES)
    ]
    data = shown | {"pictures": pictures}
    title = f"Lapis distill · {results.file.name}"
    write_html(path, fill("distill", title, data, ("dom.js", "charts.js", "distill.js")))
    return shown


def _index(results: DistillResults, place: int) -> int:
    return int(results.answers.indices[place])


def _example(results: DistillResults, place: int) -> dict[str, Any]:
    """One image on which the networks differ: the answers of both, each with the score that its own network gives."""
    answers, names, index = results.answers, results.held_aside.classes, _index(results, place)
    ours, theirs = int(answers.predicted[place]), int(answers.labels[place])
    logits = results.dense_logits[index].astype(np.float64)
    dense = np.exp(logits - logits.max())
    dense /= dense.sum()
    return {
        "file": str(results.held_aside.paths[index]),
        "answer": names[ours],
        "score": float(answers.shares[place, ours]),
        "dense_score_of_answer": float(dense[ours]),
        "dense_answer": names[theirs],
        "dense_score": float(dense[theirs]),
        "score_of_dense_answer": float(answers.shares[place, theirs]),
    }
