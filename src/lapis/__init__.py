"""Lapis: Laplacian spiking attention from first-spike timing and membrane leakage.

Importing this package loads only numpy. `lapis.nn` and `lapis.train` load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lapis.config import CodingByPoint, LapisConfig, preset
from lapis.errors import LapisError

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lapis.runtime import Session

__all__ = ["CodingByPoint", "LapisConfig", "LapisError", "Session", "__version__", "preset"]


def __getattr__(name: str) -> Any:
    # A session loads Pillow and the native library; importing the package alone must not.
    if name == "Session":
        from lapis.runtime import Session

        return Session
    raise AttributeError(f"module 'lapis' has no attribute {name!r}")
