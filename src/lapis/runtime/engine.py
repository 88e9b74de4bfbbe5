"""The native engine: the library gets a network once, and then computes integer logits from bytes of images."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lapis import native
from lapis._util.locks import ForkSafeLock
from lapis.config import LapisConfig
from lapis.deploy import arithmetic
from lapis.deploy.arithmetic import Codes
from lapis.deploy.network import Layer, Network, check_images
from lapis.errors import LapisError
from lapis.ops.integer_attention.reference import AFFINITY_MAX
from lapis.preprocess import Pixels
from lapis.runtime import opened
from lapis.trace import POINTS, Point, Trace, Watched

Logits = npt.NDArray[np.int64]

# As in csrc/engine/engine.h; this is checked when the library is opened.
STAGES = ("embed", "norm", "qkv", "attention", "proj", "fc1", "fc2", "head")
MAX_THREADS = 256
# Forms and kind of a layer, as lapis_engine_linear takes them.
_DENSE, _EVENTS, _TO_CODES = 1, 2, 0
# Stands for an activity that nobody recorded.
NOT_RECORDED = -1.0

_pointer, _i32, _i64, _float = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_float


# The points that share a range of codes, under the library's names.
_LOWS: dict[str, Point] = {
    "attention": "attention_in",
    "qk": "q",
    "v": "v",
    "readout": "readout",
    "mlp": "mlp_in",
    "hidden": "mlp_hidden",
}
# The points behind which a linear layer lies.
_LAYER_INPUTS: dict[str, Point] = {
    "attention": "attention_in",
    "readout": "readout",
    "mlp": "mlp_in",
    "hidden": "mlp_hidden",
}


class _Layer(ctypes.Structure):
    _fields_ = (("weight", _pointer), ("scale", _pointer), ("shift", _pointer))


class _Block(ctypes.Structure):
    _fields_ = (
        ("attention_gain", _pointer),
        ("attention_shift", _pointer),
        ("qkv", _Layer),
        ("table", _pointer),
        ("row_exponent", _pointer),
        ("exponents", _i64),
        ("distances", _i64),
        ("delay", _pointer),
        ("readout_scale", _float),
        ("readout_shift", _float),
        ("proj", _Layer),
        ("mlp_gain", _pointer),
        ("mlp_shift", _pointer),
        ("fc1", _Layer),
        ("rise", _pointer),
        ("fall", _pointer),
        ("fc2", _Layer),
        *((f"min_code_{name}", _i32) for name in _LOWS),
        *((f"{name}_activity", _float) for name in _LAYER_INPUTS),
    )


class _Model(ctypes.Structure):
    _fields_ = (
        *((name, _i64) for name in ("image_size", "patch_size", "width", "heads", "hidden", "depth", "classes")),
        ("position_rows", _i64),
        ("window", _i32),
        *((f"low_{name}", _i32) for name in _LOWS),
        ("mean_pooling", _i32),
        ("stream_bits", _i32),
        ("pooled_bits", _i32),
        ("eps", ctypes.c_double),
        ("patch_weight", _pointer),
        ("patch_shift", _pointer),
        ("position", _pointer),
        ("head_weight", _pointer),
        ("head_bias", _pointer),
        ("blocks", ctypes.POINTER(_Block)),
    )


_STRUCTS: dict[str, type[ctypes.Structure]] = {"lapis_layer": _Layer, "lapis_block": _Block, "lapis_model": _Model}


def _library() -> ctypes.CDLL:
    """The native library with the engine's signatures; LapisError if its structs differ from those here."""
    c = native.library()
    native.check_structs(c, _STRUCTS)
    c.lapis_engine_point_name.restype = c.lapis_engine_stage_name.restype = ctypes.c_char_p
    for name_of, names in ((c.lapis_engine_point_name, POINTS), (c.lapis_engine_stage_name, STAGES)):
        if (found := native.read_names(name_of)) != names:
            raise LapisError(
                f"the native engine counts by {', '.join(found)} and this Python by {', '.join(names)}; "
                "rebuild with `make native`"
            )
    c.lapis_engine_create.argtypes = [ctypes.POINTER(_Model), _i32, _i32, ctypes.POINTER(_pointer)]
    c.lapis_engine_run.argtypes = [_pointer, _pointer, _i64, _pointer, _pointer, _pointer]
    c.lapis_engine_bytes.argtypes = [_pointer, _i32]
    c.lapis_engine_bytes.restype = _i64
    c.lapis_engine_destroy.argtypes = [_pointer]
    c.lapis_engine_destroy.restype = None
    c.lapis_engine_peak.argtypes = []
    c.lapis_engine_peak.restype = ctypes.c_double
    c.lapis_engine_pace.argtypes = [_i32, _i64, _pointer, _pointer, _pointer]
    c.lapis_engine_break_even.argtypes = []
    c.lapis_engine_break_even.restype = ctypes.c_double
    c.lapis_engine_linear.argtypes = [
        ctypes.POINTER(_Layer), _i64, _i64, _i64, _pointer, _i32, _i32, _i32, _i32, _i32, _i32, _i32,
        _pointer, _pointer, _i32, _pointer, _pointer, _i32, _pointer,
    ]  # fmt: skip
    return c


@dataclass
class _Arrays:
    """Keeps the arrays that the library reads: alive, contiguous and of the expected type."""

    kept: list[npt.NDArray[Any]] = field(default_factory=list)

    def address(self, array: npt.NDArray[Any], kind: type) -> int:
        self.kept.append(np.ascontiguousarray(array, dtype=kind))
        return self.kept[-1].ctypes.data

    def layer(self, layer: Layer) -> _Layer:
        return _Layer(
            self.address(layer.weight, np.int8),
            self.address(layer.scale, np.float32),
            self.address(layer.shift, np.float32),
        )


def check_runnable(network: Network) -> None:
    """Raise an error for a network that the native engine cannot run, naming an executor that can."""
    config = network.config
    if not network.exact:
        raise LapisError(
            f"weight_bits={config.weight_bits}: the native engine runs integer weights; "
            "convert with 2 to 8 bits, or use native=False"
        )
    span = config.window - network.low("v")
    if config.tokens * AFFINITY_MAX * span >= 1 << 31:
        raise LapisError(
            f"{config.tokens} tokens with value codes of {span} levels could overflow 32-bit sums; "
            f"use at most {((1 << 31) - 1) // (AFFINITY_MAX * span)} tokens"
        )


class Engine:
    """A network packed for this machine. Calls of several threads take turns; its memory outlives every call."""

    def __init__(self, network: Network, threads: int = 1, low_memory: bool = False) -> None:
        check_runnable(network)
        library, handle, arrays = _library(), _pointer(), _Arrays()
        self._start(network.config, check_threads(threads), library)
        model = _describe(network, arrays)
        native.check(library.lapis_engine_create(model, self.threads, low_memory, ctypes.byref(handle)))
        self._own(handle, library.lapis_engine_destroy, handle)

    @classmethod
    def of_file(cls, path: str | Path, config: LapisConfig, threads: int = 1, low_memory: bool = False) -> Engine:
        """The engine of a packed file, whose tensors are read and checked by the library; its header has `config`."""
        self = cls.__new__(cls)
        self._start(config, check_threads(threads), _library())
        network = opened.open_file(path, self.threads, low_memory)
        c = opened.library()
        self._own(_pointer(c.lapis_network_engine(network)), c.lapis_close, network)
        opened.check_sizes(network, config, path)
        return self

    def _start(self, config: LapisConfig, threads: int, library: ctypes.CDLL) -> None:
        self.threads, self._library = threads, library
        self._depth, self._window, self._size = config.depth, config.window, config.image_size
        self._classes, self._tokens = config.classes, config.tokens
        self._widths = {p: config.hidden if p == "mlp_hidden" else config.width for p in POINTS}
        self._guard = ForkSafeLock()

    def _own(self, handle: ctypes.c_void_p, close: Callable[[Any], None], closed: ctypes.c_void_p) -> None:
        self._handle = handle
        self._close = weakref.finalize(self, close, closed)
        # When the interpreter ends, a daemon thread may still be inside a run; the system takes the memory back.
        self._close.atexit = False

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
            status = self._library.lapis_engine_run(
                self._handle,
                pixels.ctypes.data,
                len(pixels),
                logits.ctypes.data,
                trace,
                None if spent is None else spent.ctypes.data,
            )
        native.check(status)
        return logits


def peak_rate() -> float:
    """The most multiply-accumulates per nanosecond of one core with the selected kernels; 0 if unknown."""
    return float(_library().lapis_engine_peak())


def break_even() -> float:
    """The share of inputs up to which a layer runs by events in the selected kernels; 0 if none does."""
    return float(_library().lapis_engine_break_even())


def team_sizes(nanoseconds: npt.NDArray[np.float64], waited: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    """The threads that would share each run, if a run by s threads took nanoseconds[run, s-1] and waited that share."""
    (runs, threads), arrays = nanoseconds.shape, _Arrays()
    sizes = np.empty(runs, dtype=np.int32)
    times, waits = arrays.address(nanoseconds, np.float64), arrays.address(waited, np.float64)
    native.check(_library().lapis_engine_pace(threads, runs, times, waits, sizes.ctypes.data))
    return sizes


def time_layer(layer: Layer, codes: Codes, low: int, window: int, events: bool, repeats: int) -> int:
    """The best nanoseconds of one linear layer with its quantizer, of codes (rows, inputs) in low..window."""
    rows, inputs = codes.shape
    outputs, arrays = len(layer.scale), _Arrays()
    shifted = np.ascontiguousarray(codes.astype(np.int16) - low, dtype=np.uint8)
    out, spent = np.empty((rows, outputs), dtype=np.uint8), np.zeros(1, dtype=np.int64)
    form, kind, stream_bits = (_EVENTS if events else _DENSE), _TO_CODES, 1
    native.check(
        _library().lapis_engine_linear(
            ctypes.byref(arrays.layer(layer)), rows, inputs, outputs, shifted.ctypes.data, low, window, kind, form, 0,
            window, 1, None, None, stream_bits, out.ctypes.data, None, repeats, spent.ctypes.data,
        )
    )  # fmt: skip
    return int(spent[0])


def check_threads(threads: int) -> int:
    """Return `threads` if it is an integer from 1 to 256, else raise."""
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)) or not 1 <= threads <= MAX_THREADS:
        raise LapisError(f"threads={threads!r} is not a number of threads; use an integer from 1 to {MAX_THREADS}")
    return int(threads)


def _describe(network: Network, arrays: _Arrays) -> Any:
    config = network.config
    blocks = (_Block * config.depth)(*(_describe_block(network, index, arrays) for index in range(config.depth)))
    model = _Model(
        **{name: getattr(config, name) for name in ("image_size", "patch_size", "width", "heads", "hidden", "depth")},
        classes=config.classes,
        window=config.window,
        **{f"low_{name}": network.low(point) for name, point in _LOWS.items()},
        mean_pooling=config.mean_pooling,
        position_rows=len(network.position),
        stream_bits=arithmetic.STREAM_LIMIT.bit_length() - 1,
        pooled_bits=arithmetic.POOLED_BITS,
        eps=network.eps,
        patch_weight=arrays.address(network.patch_weight, np.int16),
        patch_shift=arrays.address(network.patch_shift, np.uint8),
        position=arrays.address(network.position, np.int32),
        head_weight=arrays.address(network.head_weight, np.int16),
        head_bias=arrays.address(network.head_bias, np.int64),
        blocks=blocks,
    )
    return ctypes.byref(model)


def _describe_block(network: Network, index: int, arrays: _Arrays) -> _Block:
    block, tables = network.blocks[index], network.tables[index]
    delay = network.delays[index]
    return _Block(
        attention_gain=arrays.address(block.attention_norm.gain, np.float32),
        attention_shift=arrays.address(block.attention_norm.shift, np.float32),
        qkv=arrays.layer(block.qkv),
        table=arrays.address(tables.table, np.uint16),
        row_exponent=arrays.address(tables.row_exponent, np.uint16),
        exponents=tables.table.shape[1],
        distances=tables.table.shape[2],
        delay=None if delay is None else arrays.address(delay, np.int32),
        readout_scale=float(block.readout.scale),
        readout_shift=float(block.readout.shift),
        proj=arrays.layer(block.proj),
        mlp_gain=arrays.address(block.mlp_norm.gain, np.float32),
        mlp_shift=arrays.address(block.mlp_norm.shift, np.float32),
        fc1=arrays.layer(block.fc1),
        rise=arrays.address(block.rise, np.float32),
        fall=arrays.address(block.fall, np.float32),
        fc2=arrays.layer(block.fc2),
        **{f"min_code_{name}": network.min_code(point, index) for name, point in _LOWS.items()},
        **{f"{name}_activity": _recorded(network, point, index) for name, point in _LAYER_INPUTS.items()},
    )


def _recorded(network: Network, point: Point, block: int) -> float:
    return network.activity[point][block] if point in network.activity else NOT_RECORDED
