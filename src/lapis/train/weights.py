"""Which file a name means; needs no torch."""

from __future__ import annotations

from pathlib import Path

from lapis import assets
from lapis.errors import LapisError

# What a run leaves behind, best first.
RUN_FILES = ("best.safetensors", "last.safetensors")
WEIGHT_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")


def find_weights(source: str) -> Path | None:
    """The file that `source` names: a file, a run's folder, a packaged model; None for a name that timm may know."""
    path = Path(source)
    if path.is_dir():
        for name in RUN_FILES:
            if (path / name).is_file():
                return path / name
        raise LapisError(f"{path} holds no {' or '.join(RUN_FILES)}; name a file, or a folder that a run wrote")
    packaged = None if path.is_file() else assets.find(source)
    if packaged is not None:
        return packaged
    if path.is_file():
        return path
    if path.suffix in WEIGHT_SUFFIXES or len(path.parts) > 1:
        raise LapisError(
            f"no such file or run: {path}; train that stage first, or name another with --start or --teacher"
        )
    return None
