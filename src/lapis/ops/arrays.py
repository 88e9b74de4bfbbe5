"""What all variants of an operation share: the choice between arrays and tensors, and checks of shapes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from types import ModuleType
from typing import Any

from lapis.errors import LapisError


def is_tensor(array: object) -> bool:
    """Whether `array` is a torch tensor; torch is not loaded to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def of_arrays_or_tensors(reference: Callable[..., Any], of_tensors: Callable[[], ModuleType]) -> Callable[..., Any]:
    """`reference` for arrays; for tensors, the function of its name in a module that is imported by then."""

    @wraps(reference)
    def operation(*arguments: Any, **options: Any) -> Any:
        if not any(map(is_tensor, (*arguments, *options.values())[:1])):
            return reference(*arguments, **options)
        return getattr(of_tensors(), reference.__name__)(*arguments, **options)

    return operation


def check_pair(q_shape: Sequence[int], k_shape: Sequence[int]) -> None:
    """Queries (..., N, C) and keys (..., M, C) must agree in all but the token axis."""
    q, k = tuple(q_shape), tuple(k_shape)
    if len(q) < 2 or len(k) < 2:
        raise LapisError(f"queries {q} and keys {k} need at least a token and a channel axis: (..., N, C)")
    if q[:-2] != k[:-2] or q[-1] != k[-1]:
        raise LapisError(
            f"queries {q} and keys {k} must agree in every axis but the token one: (..., N, C), (..., M, C)"
        )


def check_values(k_shape: Sequence[int], v_shape: Sequence[int]) -> None:
    """Values (..., M, C') must have one row a key."""
    k, v = tuple(k_shape), tuple(v_shape)
    if len(v) < 2 or k[:-1] != v[:-1]:
        raise LapisError(f"values {v} must have one row for each key {k}: (..., M, C')")
