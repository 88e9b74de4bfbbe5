"""Open a packed file by the native library, as C programs do: its tensors never pass through Python.

The library reads the file itself and makes every check that `lapis.pack.load` makes, by the rules of docs/format.md.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from lapis import native
from lapis.config import LapisConfig
from lapis.errors import LapisError

# As csrc/lapis.h numbers them.
CANNOT_READ, BAD_FILE, UNSUPPORTED = 6, 7, 8
LOW_MEMORY = 1
MESSAGE_BYTES = 496

_pointer, _i32, _i64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64


class Error(ctypes.Structure):
    """lapis_error: why a call failed."""

    _fields_ = (("status", _i32), ("rule", _i32), ("message", ctypes.c_char * MESSAGE_BYTES))


class Sizes(ctypes.Structure):
    """lapis_sizes: the sizes of an opened network."""

    _fields_ = (
        *((name, _i64) for name in ("image_size", "patch_size", "tokens", "classes")),
        *((name, _i64) for name in ("width", "depth", "heads", "hidden")),
        ("window", _i32),
        ("head_exponent", _i32),
        *((f"low_{name}", _i32) for name in ("attention_in", "qk", "v", "readout", "mlp_in", "mlp_hidden")),
    )


class RefusedFileError(LapisError):
    """A file that the native library does not open: its status, and the rule of docs/format.md that it breaks."""

    def __init__(self, message: str, status: int, rule: int) -> None:
        super().__init__(message)
        self.status, self.rule = status, rule


def library() -> ctypes.CDLL:
    """The native library with the signatures of csrc/lapis.h."""
    c = native.library()
    native.check_structs(c, {"lapis_error": Error, "lapis_sizes": Sizes})
    opened, error = ctypes.POINTER(_pointer), ctypes.POINTER(Error)
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "lapis_open": (_i32, [ctypes.c_char_p, _i32, _i32, opened, error]),
        "lapis_open_memory": (_i32, [ctypes.c_char_p, ctypes.c_size_t, _i32, _i32, opened, error]),
        "lapis_check_memory": (_i32, [ctypes.c_char_p, ctypes.c_size_t, error]),
        "lapis_close": (None, [_pointer]),
        "lapis_sizes_of": (ctypes.POINTER(Sizes), [_pointer]),
        "lapis_network_engine": (_pointer, [_pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(c, name)
        function.restype, function.argtypes = result, arguments
    return c


def open_file(path: str | Path, threads: int, low_memory: bool) -> ctypes.c_void_p:
    """The opened network of a file; close it with lapis_close."""
    network, error = _pointer(), Error()
    flags = LOW_MEMORY if low_memory else 0
    status = library().lapis_open(os.fsencode(path), threads, flags, ctypes.byref(network), ctypes.byref(error))
    if status:
        raise refusal(path, error)
    return network


def refusal(path: str | Path, error: Error) -> RefusedFileError:
    """What the library says about a file, in the words of `lapis.pack.load`."""
    message = error.message.decode()
    if error.status == CANNOT_READ:
        message = f"cannot read {path}: {message.partition(': ')[2]}"
    elif error.status == BAD_FILE:
        message = f"{path} is not a valid packed network: {message}"
    return RefusedFileError(message, error.status, error.rule)


def check_sizes(network: ctypes.c_void_p, config: LapisConfig, path: str | Path) -> None:
    """Refuse a network that is not the one whose header was read: the file was exchanged in between."""
    sizes = library().lapis_sizes_of(network).contents
    for name in ("image_size", "patch_size", "tokens", "classes", "width", "depth", "heads", "hidden", "window"):
        if getattr(sizes, name) != getattr(config, name):
            raise LapisError(f"{path} changed while it was read; open it again")
