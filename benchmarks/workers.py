"""Run each engine in its own process: prepare it, start it, time one batch at a time, and end it.

An engine that is not installed, fails or crashes is skipped, and the reason is reported; the others continue. The
process is `python -m benchmarks.workers prepare NAME CONFIG FOLDER`, which makes the file that the engine loads, or
`... serve NAME CONFIG FOLDER THREADS BATCH`, which loads it, answers every blank line on stdin with the time of one
batch and the line `score` with how many images it classifies correctly, and ends with its peak memory. NAME is one of
`CONTENDERS`, or a packed file in FOLDER.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from benchmarks.common import ROOT
from benchmarks.contenders import IMAGES_FILE, ISA_LIMIT, LABELS_FILE, Contender, Workload, contender_of, floats, stored
from lapis.config import LapisConfig
from lapis.errors import LapisError

# Under some hypervisors oneDNN finds AMX but not the shape of its tiles, and crashes; this turns AMX off.
NO_MATRIX_UNIT = {ISA_LIMIT: "AVX512_CORE_FP16"}
STATUS = Path("/proc/self/status")
MAX_REASON = 300
# Different images that are timed in turns; the memory of a process should not grow with them.
TIMED_IMAGES = 16
SCORE = "score"


@dataclass
class BenchLog:
    """Reports progress, and collects the engines that were skipped, with the reasons."""

    report: Callable[[str], None]
    skipped: dict[str, str] = field(default_factory=dict)

    def skip(self, label: str, reason: str) -> None:
        # The same reason is not reported again for another shape or batch.
        if self.skipped.get(label) != reason:
            self.report(f"skipped {label}: {reason}")
        self.skipped[label] = reason


@dataclass(frozen=True)
class Turn:
    """Wall and CPU seconds of one batch."""

    wall_s: float
    cpu_s: float


class IllegalInstructionError(LapisError):
    """An engine used an instruction that the processor, or the hypervisor, does not have."""


@dataclass
class Worker:
    """A process that has loaded one engine and times a batch when asked."""

    label: str
    process: subprocess.Popen[str]
    errors: IO[str]
    load_s: float = 0.0

    def time(self) -> Turn:
        """Run and time one batch."""
        return Turn(**self._ask(""))

    def score(self) -> int:
        """How many of the folder's images it classifies correctly."""
        return int(self._ask(SCORE)["correct"])

    def _ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        # If the process has ended already, `listen` gives the reason.
        with suppress(BrokenPipeError):
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
        return self.listen()

    def finish(self) -> int:
        """End the process and return its peak memory in bytes."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        peak = int(self.listen()["peak_bytes"])
        self.process.wait()
        return peak

    def listen(self) -> dict[str, Any]:
        """The next answer of the process; if it ended instead, an error with the last line of its stderr."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        code = self.process.wait()
        self.errors.seek(0)
        reason = last_line(self.errors.read()) or f"it ended with exit code {code}"
        raise (IllegalInstructionError if code == -signal.SIGILL else LapisError)(reason)


def prepare(names: Sequence[str], config: LapisConfig, folder: Path, log: BenchLog) -> list[str]:
    """Make the files of these engines that are not there yet; returns the names of those that can run."""
    return [name for name in names if _prepared(name, config, folder, log)]


@contextmanager
def workers(names: Sequence[str], workload: Workload, folder: Path, log: BenchLog) -> Iterator[dict[str, Worker]]:
    """These engines by name, each loaded in its own process; all are ended at the end of the `with`."""
    with ExitStack() as stack:
        started = {name: _started(stack, name, workload, folder, log) for name in names}
        yield {name: worker for name, worker in started.items() if worker is not None}


def _prepared(name: str, config: LapisConfig, folder: Path, log: BenchLog) -> bool:
    contender = contender_of(name)
    missing = contender.missing()
    if missing:
        log.skip(contender.label, f"{', '.join(missing)} not installed: pip install {' '.join(missing)}")
        return False
    if contender.files and all((folder / file).is_file() for file in contender.files):
        return True
    try:
        run_module("benchmarks.workers", *_words("prepare", name, config, folder))
    except LapisError as error:
        log.skip(contender.label, str(error))
        return False
    log.report(f"prepared {contender.label}")
    return True


def _started(stack: ExitStack, name: str, workload: Workload, folder: Path, log: BenchLog) -> Worker | None:
    """Start the engine, without AMX if it crashes with it; None if it cannot run."""
    label = contender_of(name).label
    try:
        try:
            return stack.enter_context(_start(name, workload, folder))
        except IllegalInstructionError:
            log.report(f"{label} crashes on this processor's matrix unit; it runs without AMX")
            return stack.enter_context(_start(name, workload, folder, NO_MATRIX_UNIT))
    except LapisError as error:
        log.skip(label, str(error))
        return None


@contextmanager
def _start(name: str, workload: Workload, folder: Path, limits: Mapping[str, str] | None = None) -> Iterator[Worker]:
    words = _words("serve", name, workload.config, folder)
    budget = {name: str(workload.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.workers", *words, str(workload.threads), str(workload.batch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, **budget, **(limits or {})},
        ) as process,
    ):
        assert process.stdin is not None
        worker = Worker(contender_of(name).label + (", no AMX" if limits else ""), process, errors)
        try:
            worker.load_s = float(worker.listen()["load_s"])
            yield worker
        finally:
            if process.poll() is None:
                process.terminate()
            # If the process ended by itself, closing would try to send a line that it did not read.
            with suppress(BrokenPipeError):
                process.stdin.close()


def _words(verb: str, name: str, config: LapisConfig, folder: Path) -> tuple[str, ...]:
    return verb, name, json.dumps(config.to_dict()), str(folder)


def run_module(module: str, *words: str) -> str:
    """What `python -m module words` prints; LapisError with the last line of its stderr if it fails."""
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise LapisError(last_line(done.stderr) or f"it ended with exit code {done.returncode}")
    return done.stdout


def last_line(text: str) -> str:
    """The last line that is not blank, cut to a readable length; empty if there is none."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:MAX_REASON] if lines else ""


def peak_memory_bytes() -> int:
    """The peak memory of this process, since its start or since it was reset by /proc/self/clear_refs."""
    lines = STATUS.read_text(encoding="utf-8").splitlines() if STATUS.exists() else []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise LapisError(f"this system does not show a process's peak memory (VmHWM in {STATUS}); use Linux")


def serve(contender: Contender, workload: Workload, folder: Path, answers: IO[str]) -> None:
    """Load, report it, then answer every line as the module's docstring says; the last answer is the peak memory."""

    def answer(**fields: float) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    def batch_at(at: int) -> Any:
        part = pixels[at : at + workload.batch]
        return np.array(part) if contender.takes_bytes else floats(part, folder)

    started = time.perf_counter()
    run = contender.load(workload, folder)
    load_s = time.perf_counter() - started
    pixels = stored(workload.config, folder, IMAGES_FILE, workload.batch)
    # Whole batches; one where there are fewer images.
    starts = range(0, max(1, min(TIMED_IMAGES, len(pixels)) - workload.batch + 1), workload.batch)
    run(batch_at(0))
    answer(load_s=load_s)
    for turn, line in enumerate(sys.stdin):
        if line.strip() == SCORE:
            labels = np.load(folder / LABELS_FILE)
            given = [np.argmax(run(batch_at(at)), 1) for at in range(0, len(pixels), workload.batch)]
            answer(correct=int((np.concatenate(given) == labels).sum()))
            continue
        images = batch_at(starts[turn % len(starts)])
        # The other engines have used the caches since.
        run(images)
        cpu, wall = time.process_time(), time.perf_counter()
        run(images)
        wall = time.perf_counter() - wall
        answer(wall_s=wall, cpu_s=time.process_time() - cpu)
    answer(peak_bytes=peak_memory_bytes())


def main(words: list[str]) -> None:
    """Prepare or serve, as the module's docstring says."""
    # Engines may print anything, also from C++; only our own answers may reach the pipe.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    verb, name, fields, folder_name, *sizes = words
    contender, config, folder = contender_of(name), LapisConfig.from_dict(json.loads(fields)), Path(folder_name)
    if verb == "prepare":
        contender.prepare(config, folder)
    else:
        threads, batch = map(int, sizes)
        serve(contender, Workload(config, threads, batch), folder, answers)


if __name__ == "__main__":
    main(sys.argv[1:])
