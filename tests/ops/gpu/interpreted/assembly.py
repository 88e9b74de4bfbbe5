"""The assembly instructions of the GPU kernels in numpy, as their vendors define them, for Triton's interpreter.

The interpreter refuses assembly, so without this no test would run the lines that a card runs. It checks operands,
their order and the sums around them, not the hardware.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from triton.runtime import interpreter

from lapis.ops.gpu.choice import OTHER, Card, Words

Array = npt.NDArray[Any]


def card_with(words: Words) -> Card:
    """A card that finds byte differences in this way; products stay in float32."""
    return dataclasses.replace(OTHER, words=words)


def _bytes(words: Array) -> npt.NDArray[np.int64]:
    """The four unsigned bytes of each word, on a new last axis."""
    little_endian = np.ascontiguousarray(words, "<i4").view(np.uint8)
    return little_endian.reshape(*words.shape, 4).astype(np.int64)


def _sum_of_differences(a: Array, b: Array, total: Array) -> Array:
    return np.asarray(total + np.abs(_bytes(a) - _bytes(b)).sum(-1), np.int32)


def _minus_twice_the_minima(a: Array, b: Array, total: Array) -> Array:
    # dp4a with 0xfe, which is -2, in each byte.
    return np.asarray(total - 2 * np.minimum(_bytes(a), _bytes(b)).sum(-1), np.int32)


def _saturated(a: Array, b: Array) -> Array:
    return np.asarray(np.clip(a - b, np.float32(0), np.float32(1)))


MEANINGS: dict[str, Callable[..., Array]] = {
    "vabsdiff4.u32.u32.u32.add": _sum_of_differences,
    "v_sad_u8": _sum_of_differences,
    "min.u8x4": _minus_twice_the_minima,
    "sub.sat.f32": _saturated,
    "v_sub_f32_e64": _saturated,
}


class _Result:
    """Stands for the operation, whose results are asked for one by one."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def get_result(self, index: int) -> Any:
        assert index == 0
        return self.handle


def _run(builder: Any, text: str, constraints: str, values: list[Any], types: list[Any], pure: bool, pack: int) -> Any:
    meaning = next(meaning for name, meaning in MEANINGS.items() if name in text)
    data = [np.broadcast_to(value.data, np.broadcast_shapes(*(v.data.shape for v in values))) for value in values]
    return _Result(interpreter.TensorHandle(meaning(*data), types[0].scalar))


@contextmanager
def emulated() -> Iterator[None]:
    """Give assembly its meaning inside."""
    refused = interpreter.InterpreterBuilder.create_inline_asm
    interpreter.InterpreterBuilder.create_inline_asm = _run
    try:
        yield
    finally:
        interpreter.InterpreterBuilder.create_inline_asm = refused
