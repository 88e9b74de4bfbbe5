"""Models and data that come with the package, by name."""

from __future__ import annotations

from pathlib import Path

from lapis.config import nearest
from lapis.errors import LapisError

FOLDER = Path(__file__).resolve().parent
SUFFIX = ".safetensors"


def names() -> list[str]:
    """The packaged models."""
    return sorted(file.stem for file in FOLDER.glob(f"*{SUFFIX}"))


def find(name: str) -> Path | None:
    """The file of a packaged model, or None where no model has this name."""
    return FOLDER / f"{name}{SUFFIX}" if name in names() else None


def resolve(name_or_path: str | Path) -> Path:
    """A file that exists: the path given, or the packaged model of that name.

    A file wins over a packaged name, so that nothing in the package can hide what lies on disk.
    """
    path = Path(name_or_path)
    if path.is_file():
        return path
    packaged = find(str(name_or_path))
    if packaged is not None:
        return packaged
    if path.is_dir():
        raise LapisError(f"{path} is a folder; name the model file in it")
    known = names()
    offer = f"packaged models: {', '.join(known)}" if known else "this build packages no models"
    raise LapisError(
        f"{name_or_path} is neither a file nor a packaged model; {nearest(str(name_or_path), known)}{offer}"
    )
