"""Run the tests of the native library on another processor: the tests here, the library in QEMU.

    python -m pytest -p tools.cross.remote --remote arm --part 1/2 tests/runtime/test_engine.py

`--remote` names a processor of `TARGETS` below; `make arm` and `make riscv` build the library and `guest.c` for it
into build/. Python, numpy and torch stay on this processor, so the tests are the same ones and as fast as ever; only
the library's own code is emulated. `guest.c` says how it reads this process's memory. `--part` leaves out what other
processes run: a test goes with its twins on other instruction sets, which share the expected values.
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import struct
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The emulator of each, with the processor that it plays and where the libraries of that processor are.
TARGETS = {
    "arm": "qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu",
    "riscv": "qemu-riscv64 -L /usr/riscv64-linux-gnu",
}
# As in guest.c.
INTEGERS, FLOATS, TEXT = 24, 4, 64
TO_INTEGER, TO_DOUBLE, TO_TEXT = range(3)
REQUEST = struct.Struct(f"{TEXT}sq{INTEGERS}q{FLOATS}f")
ANSWER = struct.Struct(f"qdq{TEXT}s")


class Guest:
    """The emulated process: one call at a time."""

    def __init__(self, command: list[str]):
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [*command, str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )

    def call(self, name: str, kind: int, integers: list[int], floats: list[float]) -> tuple[int, float, bytes | None]:
        assert len(integers) <= INTEGERS, f"{name}: more integers than guest.c passes on"
        assert len(floats) <= FLOATS, f"{name}: more floats than guest.c passes on"
        padded = [*integers, *[0] * (INTEGERS - len(integers))]
        request = REQUEST.pack(name.encode(), kind, *padded, *floats, *[0.0] * (FLOATS - len(floats)))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(request)
            self._process.stdin.flush()
            reply = self._process.stdout.read(ANSWER.size)
        if len(reply) < ANSWER.size:
            raise RuntimeError(f"the emulated process ended in {name} with status {self._process.wait()}")
        integer, real, has_text, text = ANSWER.unpack(reply)
        return integer, real, text.rstrip(b"\0") if has_text else None

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


class RemoteFunction:
    """A function of the library, called as ctypes would call it."""

    def __init__(self, guest: Guest, name: str):
        self._guest, self._name = guest, name
        self.restype: Any = ctypes.c_int32
        self.argtypes: list[Any] = []

    def __call__(self, *arguments: Any) -> Any:
        # A process's threads, and what shares them, do not exist on the other side.
        if self._name == "lapis_use_runner":
            return 0
        integers: list[int] = []
        floats: list[float] = []
        types = self.argtypes or [ctypes.c_int32] * len(arguments)
        for argument, kind in zip(arguments, types, strict=True):
            if kind is ctypes.c_float:
                floats.append(float(argument))
            else:
                integers.append(address_of(argument))
        kind = {ctypes.c_double: TO_DOUBLE, ctypes.c_char_p: TO_TEXT}.get(self.restype, TO_INTEGER)
        integer, real, text = self._guest.call(self._name, kind, integers, floats)
        if kind == TO_DOUBLE:
            return real
        if kind == TO_TEXT:
            return text
        return None if self.restype is None else self.restype(integer).value


def address_of(argument: Any) -> int:
    """The number that ctypes would pass: an integer itself, of everything else the address."""
    if argument is None:
        return 0
    if isinstance(argument, int):
        return argument
    if isinstance(argument, bytes):
        return ctypes.cast(ctypes.c_char_p(argument), ctypes.c_void_p).value or 0
    if isinstance(argument, ctypes._SimpleCData):
        return int(argument.value or 0)
    if isinstance(argument, (ctypes.Array, ctypes.Structure)):
        return ctypes.addressof(argument)
    if isinstance(argument, ctypes._Pointer):
        return ctypes.cast(argument, ctypes.c_void_p).value or 0
    return ctypes.addressof(argument._obj)  # of byref


class RemoteLibrary:
    """What `ctypes.CDLL` gives, for a library of another processor."""

    def __init__(self, guest: Guest):
        self._guest = guest

    def __getattr__(self, name: str) -> RemoteFunction:
        function = RemoteFunction(self._guest, name)
        setattr(self, name, function)
        return function


def command_of(target: str, emulator: str = "") -> list[str]:
    build = ROOT / "build" / target
    return [*shlex.split(emulator or TARGETS[target]), str(build / "guest"), str(build / "_kernels.so")]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--remote", choices=sorted(TARGETS), required=True, help="the processor that runs the library")
    parser.addoption("--part", default="1/1", help="the part of the tests to run, as in 1/2 and 2/2")


# The tests' conftest asks the library for its instruction sets, so this comes before it.
@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    target = early_config.known_args_namespace.remote
    guest = Guest(command_of(target))
    early_config.add_cleanup(guest.close)
    library = ROOT / "build" / target / "_kernels.so"
    load, os.environ["LAPIS_KERNELS"] = ctypes.CDLL, str(library)

    def remote(path: str, *arguments: Any, **options: Any) -> Any:
        return RemoteLibrary(guest) if path == str(library) else load(path, *arguments, **options)

    ctypes.CDLL = remote  # type: ignore[misc, assignment]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = part_of([case_of(item) for item in items], config.getoption("--part"))
    config.hook.pytest_deselected(items=[item for item, chosen in zip(items, part, strict=True) if not chosen])
    items[:] = [item for item, chosen in zip(items, part, strict=True) if chosen]


def case_of(item: pytest.Item) -> str:
    """The name of a test without its instruction set."""
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    # In the order of the test's parameters, of which the instruction set may be any.
    words = [word for word in re.split(r"[\[\]-]", item.nodeid) if word != parameters.get("isa")]
    return "-".join(words)


def part_of(cases: list[str], part: str) -> list[bool]:
    """Whether each test is of this part, such as 1/2: cases go to the parts in turn."""
    number, parts = map(int, part.split("/"))
    turns = {case: turn for turn, case in enumerate(dict.fromkeys(cases))}
    return [turns[case] % parts == number - 1 for case in cases]
