"""The functions of csrc/lapis.h as a C program calls them, for tests."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lapis import native
from lapis.preprocess import Pixels
from lapis.runtime.engine import MESSAGE_BYTES, RefusedFileError
from lapis.trace import POINTS, Trace

_pointer, _i32, _i64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64


class Error(ctypes.Structure):
    """lapis_error."""

    _fields_ = (("status", _i32), ("rule", _i32), ("message", ctypes.c_char * MESSAGE_BYTES))


class Sizes(ctypes.Structure):
    """lapis_sizes."""

    _fields_ = (
        *((name, _i64) for name in ("image_size", "patch_size", "tokens", "classes")),
        *((name, _i64) for name in ("width", "depth", "heads", "hidden")),
        ("window", _i32),
        ("head_exponent", _i32),
        *((f"low_{name}", _i32) for name in ("attention_in", "qk", "v", "readout", "mlp_in", "mlp_hidden")),
    )


_error, _opened = ctypes.POINTER(Error), ctypes.POINTER(_pointer)
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "lapis_open": (_i32, [ctypes.c_char_p, _i32, _i32, _opened, _error]),
    "lapis_open_memory": (_i32, [ctypes.c_char_p, ctypes.c_size_t, _i32, _i32, _opened, _pointer]),
    "lapis_close": (None, [_pointer]),
    "lapis_sizes_of": (ctypes.POINTER(Sizes), [_pointer]),
    "lapis_run": (_i32, [_pointer, _pointer, _i64, _i64, _i64, _pointer, _error]),
    "lapis_watch": (_i32, [_pointer, _pointer, _i64, _i64, _pointer, _pointer, _error]),
    "lapis_prepare": (_i32, [_pointer, _pointer, _i64, _i64, _pointer, _error]),
    "lapis_trace_bytes": (_i64, [_pointer]),
    "lapis_classes": (_i64, [_pointer]),
    "lapis_class_name": (ctypes.c_char_p, [_pointer, _i64]),
    "lapis_real": (ctypes.c_float, [_pointer, _i64]),
    "lapis_best": (_i64, [_pointer, _pointer, _i64, _pointer]),
}


def library() -> ctypes.CDLL:
    """The native library with the signatures of every public function."""
    c = native.library()
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(c, name)
        function.restype, function.argtypes = result, arguments
    return c


class CNetwork:
    """An opened network; what the library refuses is a RefusedFileError."""

    def __init__(self, source: bytes | Path, threads: int = 1, flags: int = 0) -> None:
        self.c, self.handle, self.error = library(), _pointer(), Error()
        last = (threads, flags, ctypes.byref(self.handle), ctypes.byref(self.error))
        if isinstance(source, bytes):
            status = self.c.lapis_open_memory(source, len(source), *last)
        else:
            status = self.c.lapis_open(os.fsencode(source), *last)
        self._check(status)
        self.sizes = self.c.lapis_sizes_of(self.handle).contents

    def __enter__(self) -> CNetwork:
        return self

    def __exit__(self, *_: object) -> None:
        self.c.lapis_close(self.handle)

    @property
    def class_names(self) -> tuple[str, ...]:
        names = (self.c.lapis_class_name(self.handle, index) for index in range(self.c.lapis_classes(self.handle)))
        return tuple(name.decode() for name in names if name is not None)

    def run(self, images: Pixels) -> npt.NDArray[np.int64]:
        batch, height, width, _ = images.shape
        logits = np.empty((batch, self.sizes.classes), np.int64)
        pixels = np.ascontiguousarray(images)
        self._check(self.c.lapis_run(self.handle, _at(pixels), batch, height, width, _at(logits), self._error()))
        return logits

    def watch(self, image: Pixels) -> tuple[npt.NDArray[np.int64], Trace]:
        height, width, _ = image.shape
        logits = np.empty((1, self.sizes.classes), np.int64)
        codes = np.empty(self.c.lapis_trace_bytes(self.handle), np.int8)
        pixels = np.ascontiguousarray(image)
        self._check(self.c.lapis_watch(self.handle, _at(pixels), height, width, _at(logits), _at(codes), self._error()))
        trace, start = Trace(self.sizes.window), 0
        for block in range(self.sizes.depth):
            for point in POINTS:
                channels = self.sizes.hidden if point == "mlp_hidden" else self.sizes.width
                stop = start + self.sizes.tokens * channels
                trace.note(block, point, codes[start:stop].reshape(1, self.sizes.tokens, channels))
                start = stop
        assert start == len(codes)
        return logits, trace

    def prepare(self, image: Pixels) -> Pixels:
        height, width, _ = image.shape
        out = np.empty((self.sizes.image_size, self.sizes.image_size, 3), np.uint8)
        pixels = np.ascontiguousarray(image)
        self._check(self.c.lapis_prepare(self.handle, _at(pixels), height, width, _at(out), self._error()))
        return out

    def best(self, logits: npt.NDArray[np.int64], count: int) -> list[int]:
        classes = np.zeros(count, np.int64)
        found = self.c.lapis_best(self.handle, _at(np.ascontiguousarray(logits)), count, _at(classes))
        return [int(index) for index in classes[:found]]

    def real(self, logit: int) -> float:
        return float(self.c.lapis_real(self.handle, logit))

    def _error(self) -> Any:
        return ctypes.byref(self.error)

    def _check(self, status: int) -> None:
        if status:
            assert status == self.error.status
            raise RefusedFileError(self.error.message.decode(), self.error.status, self.error.rule)


def _at(array: npt.NDArray[Any]) -> int:
    return int(array.ctypes.data)
