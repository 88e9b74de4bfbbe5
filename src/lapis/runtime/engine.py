"""The native engine: the library gets the bytes of a packed network once, and then computes logits from images."""

from __future__ import annotations

import ctypes
import struct
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from lapis import native
from lapis._util.locks import ForkSafeLock
from lapis.deploy.network import Network, check_images
from lapis.errors import LapisError
from lapis.pack import PackedFile, pack
from lapis.preprocess import Pixels
from lapis.trace import POINTS, Trace, Watched

Logits = npt.NDArray[np.int64]

# As in csrc/engine/engine.h; this is checked when the library is opened.
STAGES = ("embed", "norm", "qkv", "attention", "proj", "fc1", "fc2", "head")
MAX_THREADS = 256
# As csrc/lapis.h numbers them.
CANNOT_READ, BAD_FILE, UNSUPPORTED = 6, 7, 8
LOW_MEMORY = 1
MESSAGE_BYTES = 496

_pointer, _i32, _i64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64


def _library() -> ctypes.CDLL:
    """The native library with the engine's signatures; LapisError if it counts by other names."""
    c = native.library()
    c.lapis_engine_point_name.restype = c.lapis_engine_stage_name.restype = ctypes.c_char_p
    for name_of, names in ((c.lapis_engine_point_name, POINTS), (c.lapis_engine_stage_name, STAGES)):
        if (found := native.read_names(name_of)) != names:
            raise LapisError(
                f"the native engine counts by {', '.join(found)} and this Python by {', '.join(names)}; "
                "rebuild with `make native`"
            )
    c.lapis_open_memory.argtypes = [ctypes.c_char_p, ctypes.c_size_t, _i32, _i32, ctypes.POINTER(_pointer), _pointer]
    c.lapis_close.argtypes = [_pointer]
    c.lapis_close.restype = None
    c.lapis_network_engine.argtypes = [_pointer]
    c.lapis_network_engine.restype = _pointer
    c.lapis_engine_run.argtypes = [_pointer, _pointer, _i64, _pointer, _pointer, _pointer]
    c.lapis_engine_bytes.argtypes = [_pointer, _i32]
    c.lapis_engine_bytes.restype = _i64
    return c


class RefusedFileError(LapisError):
    """A file that the native library does not open: its status, and the rule of docs/format.md that it breaks."""

    def __init__(self, message: str, status: int, rule: int) -> None:
        super().__init__(message)
        self.status, self.rule = status, rule


class ErrorBuffer:
    """A lapis_error for the library to fill in: two 32-bit integers and a message."""

    def __init__(self) -> None:
        self._bytes = ctypes.create_string_buffer(8 + MESSAGE_BYTES)
        self.pointer = ctypes.cast(self._bytes, _pointer)

    def error(self, where: str) -> RefusedFileError:
        """What the library says about a file, in the words of `lapis.pack`."""
        status, rule = struct.unpack_from("ii", self._bytes)
        message = ctypes.string_at(ctypes.addressof(self._bytes) + 8).decode()
        if status == BAD_FILE:
            message = f"{where} is not a valid packed network: {message}"
        return RefusedFileError(message, status, rule)


class Engine:
    """A packed network made ready for this machine. Calls of several threads take turns; it keeps its own memory."""

    def __init__(self, packed: Network | PackedFile, threads: int = 1, low_memory: bool = False) -> None:
        self.threads, self._library = check_threads(threads), _library()
        packed = PackedFile(pack(packed), "this network") if isinstance(packed, Network) else packed
        config, network, error = packed.config, _pointer(), ErrorBuffer()
        flags = LOW_MEMORY if low_memory else 0
        if self._library.lapis_open_memory(
            packed.data, len(packed.data), self.threads, flags, ctypes.byref(network), error.pointer
        ):
            raise error.error(packed.where)
        self._handle = _pointer(self._library.lapis_network_engine(network))
        self._close = weakref.finalize(self, self._library.lapis_close, network)
        # When the interpreter ends, a daemon thread may still be inside a run; the system takes the memory back.
        self._close.atexit = False
        self._depth, self._window, self._size = config.depth, config.window, config.image_size
        self._classes, self._tokens = config.classes, config.tokens
        self._widths = {p: config.hidden if p == "mlp_hidden" else config.width for p in POINTS}
        self._guard = ForkSafeLock()

    def run(self, images: Pixels) -> Logits:
        """Integer logits (B, classes) of images (B, S, S, 3)."""
        return self._run(images, None, None)

    def watch(self, images: Pixels) -> Watched:
        """Integer logits, and the codes at every measuring point."""
        check_images(images, self._size)
        trace = Trace(self._window)
        addresses = (_pointer * (self._depth * len(POINTS)))()
        for block in range(self._depth):
            for index, point in enumerate(POINTS):
                codes = np.empty((len(images), self._tokens, self._widths[point]), dtype=np.int8)
                trace.note(block, point, codes)
                addresses[block * len(POINTS) + index] = codes.ctypes.data
        return Watched(self._run(images, addresses, None), trace)

    def profile(self, images: Pixels) -> dict[str, int]:
        """Nanoseconds of the first thread in each stage of one run."""
        spent = np.zeros(len(STAGES), dtype=np.int64)
        self._run(images, None, spent)
        return dict(zip(STAGES, spent.tolist(), strict=True))

    def memory(self) -> tuple[int, int]:
        """Bytes of packed weights and tables, and of working memory."""
        bytes_of = self._library.lapis_engine_bytes
        with self._guard.lock:
            self._check_open()
            return int(bytes_of(self._handle, 0)), int(bytes_of(self._handle, 1))

    def close(self) -> None:
        """Free the memory when the call in flight has ended; the engine cannot run afterwards."""
        with self._guard.lock:
            self._close()

    def _check_open(self) -> None:
        if not self._close.alive:
            raise LapisError("this engine was closed; make a new one")

    def _run(self, images: Pixels, trace: Any, spent: npt.NDArray[np.int64] | None) -> Logits:
        check_images(images, self._size)
        pixels = np.ascontiguousarray(images)
        logits = np.empty((len(pixels), self._classes), dtype=np.int64)
        with self._guard.lock:
            self._check_open()
            times = None if spent is None else spent.ctypes.data
            run = self._library.lapis_engine_run
            native.check(run(self._handle, pixels.ctypes.data, len(pixels), logits.ctypes.data, trace, times))
        return logits


def check_threads(threads: int) -> int:
    """Return `threads` if it is an integer from 1 to 256, else raise."""
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)) or not 1 <= threads <= MAX_THREADS:
        raise LapisError(f"threads={threads!r} is not a number of threads; use an integer from 1 to {MAX_THREADS}")
    return int(threads)
