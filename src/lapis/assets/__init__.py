"""Models and data that come with the package, by name."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SUFFIX = ".safetensors"


def names() -> list[str]:
    """The packaged models."""
    return sorted(file.stem for file in FOLDER.glob(f"*{SUFFIX}"))


def find(name: str) -> Path | None:
    """The file of a packaged model, or None if no model has this name."""
    return FOLDER / f"{name}{SUFFIX}" if name in names() else None
