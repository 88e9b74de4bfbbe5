"""Models and data that come with the package, by name.

An installed package carries networks in the folder models beside this file; a checkout has them in its own models/.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SUFFIX = ".safetensors"
# What the networks of models/ are; accuracy is of all 10,000 CIFAR-10 test images.
MODELS = {
    "lapis_tiny.cifar10": "CIFAR-10, 93.35 % top-1; 65 % of values spike",
    "lapis_tiny.cifar10_dense": "CIFAR-10, 93.85 % top-1; 87 % of values spike",
    "lapis_tiny.cifar10_half": "CIFAR-10, 93.24 % top-1; 50 % of values spike",
    "lapis_tiny.cifar10_sparse": "CIFAR-10, 92.39 % top-1; 48 % of values spike",
    "lapis_tiny.cifar10_rare": "CIFAR-10, 91.81 % top-1; 40 % of values spike",
}


def names() -> list[str]:
    """The models of this installation."""
    return sorted(file.stem for file in _folder().glob(f"*{SUFFIX}"))


def find(name: str) -> Path | None:
    """The file of a packaged model, or None if no model has this name."""
    return _folder() / f"{name}{SUFFIX}" if name in names() else None


def _folder() -> Path:
    checkout = FOLDER.parents[2]
    return checkout / "models" if (checkout / "pyproject.toml").is_file() else FOLDER / "models"
