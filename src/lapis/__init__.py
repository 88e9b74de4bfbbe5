"""Lapis: Laplacian spiking attention from first-spike timing and membrane leakage.

Importing this package loads nothing else. `lapis.nn` and `lapis.train` load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lapis.config import LapisConfig as LapisConfig
    from lapis.config import preset as preset
    from lapis.errors import LapisError as LapisError
    from lapis.models import Model as Model
    from lapis.models import list_models as list_models
    from lapis.models import load as load
    from lapis.preprocess import Preprocess as Preprocess
    from lapis.runtime import Prediction as Prediction
    from lapis.runtime import Session as Session

# Where each name is; it is loaded when it is first used, so that importing the package takes no time.
_HOMES = {
    "LapisConfig": "lapis.config",
    "LapisError": "lapis.errors",
    "Model": "lapis.models",
    "Prediction": "lapis.runtime",
    "Preprocess": "lapis.preprocess",
    "Session": "lapis.runtime",
    "list_models": "lapis.models",
    "load": "lapis.models",
    "preset": "lapis.config",
}
__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lapis' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value
