"""Convert a trained network to its deployed form and back, and verify that all executors agree.

Torch is loaded with the first name that needs it; `verify` and the executors of deployed networks do not need it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lapis.convert.agreement import Executor, verify
    from lapis.convert.evaluated import Evaluated
    from lapis.convert.fold import from_model
    from lapis.convert.torch_executor import TorchExecutor
    from lapis.convert.unfold import to_model

__all__ = ["Evaluated", "Executor", "TorchExecutor", "from_model", "to_model", "verify"]

_HOMES = {
    "Evaluated": "evaluated",
    "Executor": "agreement",
    "TorchExecutor": "torch_executor",
    "from_model": "fold",
    "to_model": "unfold",
    "verify": "agreement",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lapis.convert' has no attribute {name!r}")
    return getattr(import_module(f"lapis.convert.{_HOMES[name]}"), name)
