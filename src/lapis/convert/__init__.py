"""Convert a trained network to its deployed form and back, and verify that all executors agree.

Torch is loaded with the first name that needs it; `verify` and the executors of deployed networks do not need it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lapis.convert.fold import from_model
    from lapis.convert.from_network import to_model
    from lapis.convert.torch_executor import DeployedEvaluator, TorchExecutor
    from lapis.convert.verification import Executor, verify

__all__ = ["DeployedEvaluator", "Executor", "TorchExecutor", "from_model", "to_model", "verify"]

_HOMES = {
    "DeployedEvaluator": "torch_executor",
    "Executor": "verification",
    "TorchExecutor": "torch_executor",
    "from_model": "fold",
    "to_model": "from_network",
    "verify": "verification",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lapis.convert' has no attribute {name!r}")
    return getattr(import_module(f"lapis.convert.{_HOMES[name]}"), name)
