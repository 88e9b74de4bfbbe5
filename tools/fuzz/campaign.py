"""Feed mutated files to the reader and the executors, and judge each outcome."""

from __future__ import annotations

import ctypes
import os
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lapis import native
from lapis._util.terminal import echo
from lapis.deploy import integer
from lapis.deploy.network import Network
from lapis.errors import LapisError
from lapis.pack import load
from lapis.runtime.engine import BAD_FILE, Engine, ErrorBuffer
from tools.fuzz.mutate import Generator, mutated

CORPUS = Path(__file__).with_name("corpus")
REJECTED, ACCEPTED, EQUAL, FAILED = "rejected", "accepted", "accepted and equal", "failed"
# Sound files whose answer is not compared: too large to run here, for no engine, or refused by an executor.
TOO_LARGE, NO_ENGINE, REFUSED = "accepted, too large", "accepted, no engine", "accepted, refused by an executor"
# A load takes a millisecond of the processor and a run ten.
PATIENCE_SECONDS = 10
# Files that one forked child works through.
PER_CHILD = 50
# Pixels and tokens of a network that is run here; a mutated one may be valid and large.
LARGEST_TOKENS, LARGEST_WIDTH = 400, 256


def corpus() -> list[bytes]:
    """Sound files, small and of every kind, in the order of their names."""
    return [path.read_bytes() for path in sorted(CORPUS.glob("*.safetensors"))]


class SlowError(Exception):
    """A file that keeps the reader busy."""


@contextmanager
def patience(seconds: int) -> Iterator[None]:
    """Raise SlowError when the block has used so many seconds of the processor, however busy that is otherwise."""

    def expire(*_: object) -> None:
        raise SlowError(f"took longer than {seconds} s")

    previous = signal.signal(signal.SIGPROF, expire)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


class Campaign:
    """Mutations of some sound files, the same for the same seed."""

    def __init__(self, seeds: Sequence[bytes], seed: int, failures: Path, seconds: float = 0.0) -> None:
        self.seeds, self.seed, self.failures, self.seconds = list(seeds), seed, failures, seconds
        memory = Path("/dev/shm")
        self.scratch = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
        self.path = Path(self.scratch.name) / "f.safetensors"

    def load(self, count: int) -> dict[str, int]:
        """Load so many files."""
        counts = Counter({REJECTED: 0, ACCEPTED: 0, FAILED: 0})
        ends = self._end()
        for number in range(count):
            if time.monotonic() > ends:
                break
            counts[self._judge(self._file(0, number), number, only_load=True)] += 1
        return dict(counts)

    def run(self, count: int) -> dict[str, int]:
        """Load and run so many files, in forked children; a child that dies has failed on its last file."""
        counts = Counter({REJECTED: 0, EQUAL: 0, TOO_LARGE: 0, NO_ENGINE: 0, REFUSED: 0, FAILED: 0})
        ends, number = self._end(), 0
        while number < count and time.monotonic() < ends:
            stop = min(number + PER_CHILD, count)
            found = self._in_child(number, stop)
            counts.update(found)
            number += len(found)
            if number < stop:
                self._keep(self._file(1, number), number, "the process died")
                counts[FAILED] += 1
                number += 1
        return dict(counts)

    def _end(self) -> float:
        return time.monotonic() + self.seconds if self.seconds else float("inf")

    def _file(self, part: int, number: int) -> bytes:
        generator = np.random.default_rng((self.seed, part, number))
        return mutated(self.seeds[int(generator.integers(len(self.seeds)))], generator)

    def _in_child(self, start: int, stop: int) -> list[str]:
        """The outcomes of these files, up to the one in which the child died."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            with os.fdopen(write, "w") as pipe:
                for number in range(start, stop):
                    outcome = self._judge(self._file(1, number), number, only_load=False)
                    pipe.write(outcome + "\n")
                    pipe.flush()
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            outcomes = pipe.read().splitlines()
        os.waitpid(pid, 0)
        return outcomes

    def _judge(self, data: bytes, number: int, only_load: bool) -> str:
        self.path.write_bytes(data)
        try:
            with patience(PATIENCE_SECONDS), warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    network = load(self.path)
                except LapisError as error:
                    if "\n" in str(error):
                        raise RuntimeError("the error has several lines") from error
                    check_verdict(data, accepted=False)
                    return REJECTED
                check_verdict(data, accepted=True)
                return ACCEPTED if only_load else _answers(network, number)
        except Exception as error:
            self._keep(data, number, f"{type(error).__name__}: {error}")
            return FAILED

    def _keep(self, data: bytes, number: int, why: str) -> None:
        self.failures.mkdir(parents=True, exist_ok=True)
        target = self.failures / f"{self.seed}-{number}.safetensors"
        target.write_bytes(data)
        echo(f"{target}: {why}", error=True)


def check_verdict(data: bytes, accepted: bool) -> None:
    """Raise unless the C reader judges a file as the Python reader did."""
    if not native.available():
        return
    error = ErrorBuffer()
    status = native.library().lapis_check_memory(data, ctypes.c_size_t(len(data)), error.pointer)
    if (status == 0) != accepted or status not in (0, BAD_FILE):
        verdict = "accepted" if accepted else "refused"
        raise RuntimeError(f"Python {verdict} it, and C says: status {status}, {error.error('it')}")


def _answers(network: Network, number: int) -> str:
    """Whether the engine answers as the integer model does, on every instruction set in turn."""
    config = network.config
    if config.tokens > LARGEST_TOKENS or config.width > LARGEST_WIDTH:
        return TOO_LARGE
    generator: Generator = np.random.default_rng(number)
    images = generator.integers(0, 256, (2, config.image_size, config.image_size, 3), dtype=np.uint8)
    images[1] = _extreme(images[1], number)
    try:
        want = integer.watch(network, images)
        if not native.available():
            return NO_ENGINE
        isas = native.isas()
        with native.force(isas[number % len(isas)]):
            engine = Engine(network, 1 + number % 2, bool(number % 3 == 0))
            found = engine.watch(images)
            engine.close()
    except LapisError:
        return REFUSED
    assert (found.logits == want.logits).all(), "the engine gives other logits"
    assert all((found.trace[key] == want.trace[key]).all() for key in want.trace), "the engine gives other codes"
    return EQUAL


def _extreme(image: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], number: int) -> Any:
    side = np.arange(len(image))
    checkers = ((side[:, None] + side[None, :]) % 2 * 255)[:, :, None]
    return (0, 255, checkers)[number % 3]
