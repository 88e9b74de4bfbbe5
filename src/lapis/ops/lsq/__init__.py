"""Learned step size quantization: z = clamp(floor((x - o)/s + 1/2), low, high), and the value z s + o.

A code below `min_code` in magnitude becomes 0: its neuron missed the deadline, step T - min_code, and stays silent.
"""

from __future__ import annotations

from typing import Any

from lapis.ops.arrays import is_tensor
from lapis.ops.lsq import reference


def lsq_codes(x: Any, step: Any, offset: Any = None, low: int = 0, high: int = 15, min_code: int = 1) -> Any:
    """z of every x; on tensors integer-valued floats, differentiable in x, step and offset."""
    if is_tensor(x):
        from lapis.ops.lsq import torch_native

        return torch_native.lsq_codes(x, step, offset, low, high, min_code=min_code)
    return reference.lsq_codes(x, step, offset, low, high, min_code)


def lsq_value(x: Any, step: Any, offset: Any = None, low: int = 0, high: int = 15, min_code: int = 1) -> Any:
    """z s + o: the real value that the code of x stands for."""
    if is_tensor(x):
        from lapis.ops.lsq import torch_native

        return torch_native.lsq_value(x, step, offset, low, high, min_code=min_code)
    return reference.lsq_value(x, step, offset, low, high, min_code)
