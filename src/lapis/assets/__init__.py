"""Models and data that come with the package, by name.

An installed package carries networks in the folder models beside this file; a checkout has them in its own models/.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent
SUFFIX = ".safetensors"


class Packaged(NamedTuple):
    """What a network of models/ is, and the score below which its answer is none of its classes.

    Of the right answers on images held out of its training, 5 % have a lower score: `tools/min_score.py`. For ImageNet
    right is the dense network's answer on photographs held aside. The CIFAR-10 networks were trained on all training
    images, so theirs are of test images, at least 2,000; no accuracy depends on them.
    """

    what: str
    min_score: float | None = None


# Accuracy is of all 10,000 CIFAR-10 test images, or of 1,000 ImageNet validation images, one for each class.
MODELS = {
    "lapis_tiny.imagenet": Packaged("ImageNet, 1,000 classes at 224 px, 65.2 % top-1; 89 % of values spike", 0.11),
    "lapis_tiny.imagenet_half": Packaged("ImageNet, 1,000 classes at 224 px, 63.5 % top-1; 68 % of values spike", 0.13),
    "lapis_tiny.cifar10": Packaged("CIFAR-10, 94.18 % top-1; 48 % of values spike", 0.9),
    "lapis_tiny.cifar10_dense": Packaged("CIFAR-10, 93.80 % top-1; 88 % of values spike", 0.86),
    "lapis_tiny.cifar10_sparse": Packaged("CIFAR-10, 91.93 % top-1; 30 % of values spike", 0.82),
}


def names() -> list[str]:
    """The models of this installation."""
    return sorted(file.stem for file in _folder().glob(f"*{SUFFIX}"))


def find(name: str) -> Path | None:
    """The file of a packaged model, or None if no model has this name."""
    return _folder() / f"{name}{SUFFIX}" if name in names() else None


def min_score(name: str) -> float | None:
    """The score below which a packaged network, by name or file, answers none of its classes; None where unknown."""
    known = MODELS.get(Path(name).name.removesuffix(SUFFIX))
    return None if known is None else known.min_score


def _folder() -> Path:
    checkout = FOLDER.parents[2]
    return checkout / "models" if (checkout / "pyproject.toml").is_file() else FOLDER / "models"
