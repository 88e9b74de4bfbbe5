"""Time and memory of a process from its start to its first answer, beside ONNX Runtime's.

Every contender is a fresh process that reads one photograph and classifies it; all take turns. ONNX Runtime runs the
dense network of the same shape in int8, with random weights.

python -m benchmarks.startup --rounds 20
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import click

from benchmarks.common import ROOT, deliver, machine, main, output_options, report, rounds_option, take_turns
from benchmarks.contenders import ONNX_INT8_FILE
from benchmarks.workers import BenchLog, last_line, prepare
from lapis.assets import FOLDER
from lapis.config import preset
from lapis.errors import LapisError

MODEL, ONNX = "lapis_tiny.imagenet", "ONNX Runtime int8, first answer"
PHOTO = FOLDER / "photos" / "cat.webp"
SCRIPTS = {
    "import numpy": "import numpy",
    "Session, first answer": f"from lapis import Session; Session({MODEL!r}).predict({str(PHOTO)!r})",
    "lapis predict": f"from lapis.cli import main; main(['predict', {MODEL!r}, {str(PHOTO)!r}])",
}
ONNX_SCRIPT = """
import numpy, onnxruntime
from PIL import Image
pixels = numpy.asarray(Image.open({photo!r}).convert("RGB").resize((224, 224)), numpy.float32)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession({file!r}, options, providers=["CPUExecutionProvider"])
session.run(None, {{"images": pixels.transpose(2, 0, 1)[None] / 127.5 - 1}})
"""


@dataclass(frozen=True)
class StartRow:
    """One process: medians of wall and processor time, and its largest peak of memory."""

    process: str
    wall_s: float
    cpu_s: float
    peak_mb: float


def run_once(script: str) -> tuple[float, float, float]:
    """Wall and processor seconds, and peak memory in MB, of a fresh process."""
    # With compiled modules, as an installed package has them.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    variables |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryFile("w+") as errors:
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", script], cwd=ROOT, env=variables, stdout=subprocess.DEVNULL, stderr=errors
        )
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise LapisError(last_line(errors.read()) or f"it ended with exit code {process.returncode}")
    return wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


@click.command()
@rounds_option(20)
@output_options
def command(rounds: int, as_json: bool, out: Path | None) -> None:
    """Time a process from its start to its first answer, and its memory.

    \b
    Example:
      python -m benchmarks.startup --rounds 20
    """
    with tempfile.TemporaryDirectory(prefix="lapis-bench-") as made:
        scripts, folder = dict(SCRIPTS), Path(made)
        if prepare(["onnx_int8"], preset("lapis_tiny").deployed(), folder, BenchLog(report)):
            scripts[ONNX] = ONNX_SCRIPT.format(photo=str(PHOTO), file=str(folder / ONNX_INT8_FILE))
        for script in scripts.values():
            run_once(script)  # compiles what Python compiles once
        turns = take_turns({name: partial(run_once, script) for name, script in scripts.items()}, rounds)
    rows = []
    for name, taken in turns.items():
        walls, worked, peaks = zip(*taken, strict=True)
        rows.append(StartRow(name, round(median(walls), 3), round(median(worked), 3), round(max(peaks), 1)))
    deliver("startup", machine(), rows, as_json, out)


if __name__ == "__main__":
    sys.exit(main(command))
