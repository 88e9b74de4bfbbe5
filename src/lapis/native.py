"""Find and load the native library, and select the kernels that this machine runs.

This happens when a kernel is first needed. Two environment variables are read then: `LAPIS_KERNELS`, the path of
another build of the library, and `LAPIS_ISA`, the instruction set to use ("none" turns the library off).
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from lapis._util.locks import ForkSafeLock
from lapis.config import RowScale, nearest
from lapis.errors import LapisError

# Must equal LAPIS_ABI of csrc/library.h.
ABI = 9
NONE = "none"
# As CMake names it.
_FILE = "_kernels.dll" if os.name == "nt" else "_kernels.so"

CODES_U8, CODES_F32 = 0, 1
OUT_I32, OUT_F32 = 0, 1
L1, HAMMING, DOT = 0, 1, 2
# As csrc/library.h numbers them.
ROW_SCALES: dict[RowScale, int] = {"exact": 0, "pow2": 1}

Strides = ctypes.c_int64 * 3


class Pairs(ctypes.Structure):
    """lapis_pairs: sizes and strides that the pairwise kernels share."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "heads", "rows", "keys", "channels")),
        ("q_stride", Strides),
        ("k_stride", Strides),
        ("code_type", ctypes.c_int32),
        ("relation", ctypes.c_int32),
        ("zero_code", ctypes.c_int64),
    )


def pairs(
    sizes: Sequence[int],
    keys: int,
    q_stride: Sequence[int],
    k_stride: Sequence[int],
    code_type: int,
    relation: int,
    zero_code: int = 0,
) -> Pairs:
    """The record for q of sizes (B, H, N, C) and k of `keys` tokens; strides of b, h, n in elements."""
    batch, heads, rows, channels = sizes
    strides = Strides(*q_stride), Strides(*k_stride)
    return Pairs(batch, heads, rows, keys, channels, *strides, code_type, relation, zero_code)


class CodesError(LapisError):
    """Codes that are not integers, or whose range is too large for the kernels."""


BAD_CODES = 3
_PROBLEMS = {
    1: "an argument was refused by the native library: a size is out of range or an array is missing",
    2: "there is not enough memory for the kernel's scratch; use a smaller batch",
    BAD_CODES: "codes must be integers that span at most 0..255 (0..254 for a gradient), not NaN; quantize them first",
    4: "a distance with its delay lies outside the affinity table; build the table for C * T plus the largest delay",
    5: "an int32 sum could overflow: keys * 32767 * largest value must stay below 2**31; use fewer keys",
}

_pointer, _i32, _i64, _float = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_float
_pairs, _counter = ctypes.POINTER(Pairs), ctypes.POINTER(_i64)
_qkv = [_pairs, _pointer, _pointer, _pointer, _counter]
_lsq_backward = [_pointer, _pointer, _i64, _i64, _pointer, _i32, _pointer, *([_float] * 3), *([_pointer] * 3), _i32]
_SIGNATURES: dict[str, list[Any]] = {
    "lapis_distance": [_pairs, _pointer, _pointer, _pointer, _i32, _i32],
    "lapis_distance_backward": [_pairs, *([_pointer] * 5), _i32],
    "lapis_attention": [*_qkv, _pointer, _pointer, _i64, _pointer, _i32, _pointer, _counter, _i32],
    "lapis_integer_attention": [
        *_qkv, _i32, _pointer, _pointer, _i64, _i64, _pointer, _pointer, _counter, _pointer, _i32,
    ],
    "lapis_lsq": [_pointer, _i64, _i64, _pointer, _i32, _pointer, *([_float] * 3), _pointer, _pointer, _i32],
    "lapis_lsq_value_backward": _lsq_backward,
    "lapis_lsq_codes_backward": _lsq_backward,
    "lapis_spikes_fire": [
        _pointer, _i64, _i64, _pointer, _pointer, _i32, _i64, _i32, _i32, _i32, _pointer, _pointer, _i32,
    ],
    "lapis_spikes_integrate": [_pointer, _i64, _i64, _i64, _pointer, _i64, _i64, _i32, _pointer, _counter, _i32],
    "lapis_spikes_relate": [_pointer, _pointer, *([_i64] * 5), _i32, _pointer, _counter, _i32],
    "lapis_spikes_leak": [_pointer, _i64, _i64, _i64, _pointer, _pointer, _i64, _i32, _pointer, _pointer],
    "lapis_spikes_mix": [_pointer, *([_i64] * 4), _pointer, _i64, _i64, _i32, _pointer, _counter, _i32],
    "lapis_abi": [],
    "lapis_pairs_field": [_i32, _counter],
    "lapis_use_runner": [_pointer],
    "lapis_isa_name": [_i32],
    "lapis_isa_supported": [_i32],
    "lapis_isa_current": [],
    "lapis_isa_select": [_i32],
}  # fmt: skip


@dataclass(frozen=True)
class Library:
    """One loaded build: `names` are the instruction sets that it was built with, `isas` those that run here.

    Where none could be loaded, there is no `c` and a `reason`.
    """

    c: Any = None
    path: Path | None = None
    names: tuple[str, ...] = ()
    isas: tuple[str, ...] = ()
    reason: str = ""

    @property
    def isa(self) -> str:
        return NONE if self.c is None else self.names[int(self.c.lapis_isa_current())]

    def select(self, isa: str) -> None:
        if self.c is None:
            raise LapisError(f"instruction set {isa!r} needs the native kernels: {self.reason}")
        if isa not in self.isas:
            raise LapisError(
                f"instruction set {isa!r} does not run here; {nearest(isa, self.isas)}use {', '.join(self.isas)}"
            )
        self.c.lapis_isa_select(self.names.index(isa))


# None until a kernel is first needed.
_library: Library | None = None
# The address of GOMP_parallel, once torch has loaded it.
_runner: int | None = None
_guard = ForkSafeLock()


def available() -> bool:
    """Whether the native kernels can be used."""
    return _loaded().c is not None


def library() -> ctypes.CDLL:
    """The loaded library; LapisError with the reason where there is none."""
    found: ctypes.CDLL | None = _loaded().c
    if found is None:
        raise LapisError(f"the native kernels are not available: {_loaded().reason}")
    return found


def isa() -> str:
    """The instruction set in use, or "none"."""
    return _loaded().isa


def isas() -> tuple[str, ...]:
    """The instruction sets that can be used here, best first; empty without the library."""
    return _loaded().isas


def known_isas() -> tuple[str, ...]:
    """The instruction sets that the library was built with, best first; this processor may lack some of them."""
    return _loaded().names


def describe() -> str:
    """One line of text: the instruction set and library in use, or why there is none."""
    return f"{isa()} ({_loaded().reason or _loaded().path})"


def check(status: int) -> None:
    """Raise the LapisError that a kernel's status stands for."""
    if status:
        problem = _PROBLEMS.get(status, f"the native library failed with status {status}")
        raise (CodesError if status == BAD_CODES else LapisError)(problem)


def call(name: str, *arguments: Any) -> None:
    """Call a function of the library that returns a status; of arrays and tensors it gets the addresses."""
    check(getattr(library(), name)(*map(_address, arguments)))


def _address(argument: Any) -> Any:
    if hasattr(argument, "data_ptr"):
        return argument.data_ptr()
    return argument.ctypes.data if hasattr(argument, "ctypes") else argument


def read_names(name_of: Callable[[int], bytes | None]) -> tuple[str, ...]:
    """The names that a function of the library gives to 0, 1, 2 and so on, up to its first NULL."""
    names = takewhile(lambda name: name is not None, map(name_of, count()))
    return tuple(name.decode() for name in names if name is not None)


def share_threads() -> None:
    """Run the kernels on torch's OpenMP threads, where those are the GNU ones. Call it after torch was imported.

    Those threads keep spinning for a while after torch's own work, and other threads would have to wait for them.
    """
    global _runner
    try:
        found = ctypes.CDLL(None).GOMP_parallel
    except (AttributeError, OSError):
        return
    _runner = ctypes.cast(found, ctypes.c_void_p).value
    if _library is not None and _library.c is not None:
        _library.c.lapis_use_runner(_runner)


@contextmanager
def force(isa: str, path: Path | str | None = None) -> Iterator[None]:
    """Use one instruction set inside a `with`, optionally of another build; "none" turns the library off.

    It affects the whole process, so it is for tests and benchmarks.
    """
    global _library
    before, selected = _loaded(), _loaded().isa
    try:
        chosen = Library(reason="it was turned off") if isa == NONE else before if path is None else _load(Path(path))
        if isa != NONE:
            chosen.select(isa)
        _library = chosen
        yield
    finally:
        _library = before
        if selected != NONE:
            before.select(selected)


def _loaded() -> Library:
    global _library
    if _library is None:
        with _guard.lock:
            if _library is None:
                _library = _decide()
    return _library


def _decide() -> Library:
    requested, named = os.environ.get("LAPIS_ISA", ""), os.environ.get("LAPIS_KERNELS", "")
    if requested == NONE:
        return Library(reason="LAPIS_ISA=none")
    if named and not Path(named).is_file():
        raise LapisError(f"LAPIS_KERNELS={named} is not a file; give the path of a built library or unset it")
    try:
        found = _load(Path(named) if named else _find())
    except OSError as error:
        if named:
            raise LapisError(f"LAPIS_KERNELS={named} does not load: {error}; unset it to use the own build") from None
        missing = isinstance(error, FileNotFoundError)
        reason = "the package was installed without a C compiler" if missing else f"the library does not load: {error}"
        import logging

        logging.getLogger("lapis").warning(
            "lapis runs without its native kernels (%s); numpy and torch give the same answers, more slowly", reason
        )
        return Library(reason=reason)
    if requested:
        found.select(requested)
    return found


def _find() -> Path:
    own_build = Path(__file__).with_name(_FILE)
    if own_build.is_file():
        return own_build
    # An editable install may keep the library in another folder than the sources.
    spec = importlib.util.find_spec("lapis._kernels")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(_FILE)
    return Path(spec.origin)


def _load(path: Path) -> Library:
    c = ctypes.CDLL(str(path))
    if not hasattr(c, "lapis_abi"):
        raise LapisError(
            f"{path} is another library than that of Lapis (it has no lapis_abi); give LAPIS_KERNELS the path of a "
            "_kernels library, or unset it"
        )
    if c.lapis_abi() != ABI:
        raise LapisError(f"{path} has ABI {c.lapis_abi()}, this Python needs {ABI}; rebuild with `make native`")
    for name, arguments in _SIGNATURES.items():
        getattr(c, name).argtypes = arguments
    c.lapis_isa_name.restype = c.lapis_pairs_field.restype = ctypes.c_char_p
    _check_pairs(c)
    if _runner is not None:
        c.lapis_use_runner(_runner)
    names = read_names(c.lapis_isa_name)
    return Library(c, path, names, tuple(name for index, name in enumerate(names) if c.lapis_isa_supported(index)))


def _check_pairs(c: ctypes.CDLL) -> None:
    """Refuse a library whose lapis_pairs is laid out otherwise than `Pairs`."""
    end, found = _i64(), list[str]()
    while name := c.lapis_pairs_field(len(found), ctypes.byref(end)):
        found.append(f"{name.decode()} before byte {end.value}")
    fields = {field[0]: getattr(Pairs, field[0]) for field in Pairs._fields_}
    expected = [f"{name} before byte {field.offset + field.size}" for name, field in fields.items()]
    if found != expected:
        raise LapisError(
            f"the native library's lapis_pairs has {', '.join(found)} where this Python has {', '.join(expected)}; "
            "rebuild with `make native`"
        )
