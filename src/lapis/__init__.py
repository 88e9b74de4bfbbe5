"""Lapis: Laplacian spiking attention from first-spike timing and membrane leakage.

Importing this package loads nothing else. `lapis.nn` and `lapis.train` load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lapis.config import CodingByPoint, LapisConfig, preset
    from lapis.errors import LapisError
    from lapis.runtime import Session

__all__ = ["CodingByPoint", "LapisConfig", "LapisError", "Session", "__version__", "preset"]

# Where each name is; it is loaded when it is first used, so that importing the package takes no time.
_HOMES = {
    "CodingByPoint": "lapis.config",
    "LapisConfig": "lapis.config",
    "LapisError": "lapis.errors",
    "Session": "lapis.runtime",
    "preset": "lapis.config",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lapis' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value
