"""Find `min_score` of a network: the score below which 5 % of its right answers fall, on held-out images.

    python tools/min_score.py MODEL FOLDER [--share 0.05] [--limit 2000]

FOLDER is what `lapis evaluate --data` takes. The score of an answer is its share of the softmax of the logits. Printed
are the threshold, and how many wrong answers lie below it: those that "none of these" would catch.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lapis import models
from lapis.data.images import match_classes, spread
from lapis.data.open import open_images
from lapis.runtime import Session, evaluate_session


def threshold(scores: npt.NDArray[np.float64], right: npt.NDArray[np.bool_], share: float) -> float:
    """The score below which `share` of the right answers lie, rounded down to three digits."""
    return float(np.floor(1000 * np.quantile(scores[right], share)) / 1000)


def measure(model: str, folder: Path, share: float, limit: int | None) -> dict[str, float | int | str]:
    """The threshold of a network on the images of a folder, and what it would do there."""
    opened, images = models.load(model), open_images(folder, "test")
    images, _ = match_classes(images, opened.class_names, opened.config.classes)
    images = images if limit is None else spread(images, limit)
    scores: list[npt.NDArray[np.float64]] = []
    right: list[npt.NDArray[np.bool_]] = []

    def note(indices: list[int], logits: npt.NDArray[np.float32]) -> None:
        rows = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
        scores.append((rows / rows.sum(axis=1, keepdims=True)).max(axis=1))
        right.append(logits.argmax(axis=1) == images.labels[indices])

    evaluate_session(Session(model), images, images.labels, answered=note)
    every, hits = np.concatenate(scores), np.concatenate(right)
    found = threshold(every, hits, share)
    return {
        "model": model,
        "images": len(every),
        "min_score": found,
        "right_below": int((every[hits] < found).sum()),
        "right": int(hits.sum()),
        "wrong_below": int((every[~hits] < found).sum()),
        "wrong": int((~hits).sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--share", type=float, default=0.05, help="of the right answers, that may fall below")
    parser.add_argument("--limit", type=int, help="images, evenly spread")
    chosen = parser.parse_args()
    print(json.dumps(measure(chosen.model, chosen.folder, chosen.share, chosen.limit)))


if __name__ == "__main__":
    main()
