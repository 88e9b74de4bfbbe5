"""An exported network in ONNX Runtime, at every level of its optimiser and with one and two threads, for `verify`.

The optimiser rewrites a graph more freely from level to level, and threads split its products: the answer must be the
same for all of them.
"""

from __future__ import annotations

from typing import Any

from lapis._util.hints import import_optional
from lapis.bridges.onnx_export import IMAGES, INTEGER_LOGITS, export
from lapis.convert.verification import Executor
from lapis.deploy.network import Network
from lapis.preprocess import Pixels
from lapis.trace import POINTS, Trace, Watched

# Our word for a level, and ONNX Runtime's.
LEVELS = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
THREADS = (1, 2)
# Its warnings are about initialisers that were folded away.
ERRORS_ONLY = 3


def open_session(file: bytes, level: str = "all", threads: int = 1) -> Any:
    """An `onnxruntime.InferenceSession` of an exported file on the processor."""
    runtime = import_optional("onnxruntime", "onnx", "to run an ONNX file")
    options = runtime.SessionOptions()
    options.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, LEVELS[level])
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = ERRORS_ONLY
    # Threads that wait would otherwise keep their cores from other programs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def onnx_executors(network: Network) -> dict[str, Executor]:
    """The exported file at every level and number of threads, and first a graph that also gives all codes."""
    file = export(network)
    table = {"onnx codes": onnx_executor(network, export(network, watched=True))}
    for level in LEVELS:
        for threads in THREADS:
            table[f"onnx {level} {threads}"] = onnx_executor(network, file, level, threads)
    return table


def onnx_executor(network: Network, file: bytes, level: str = "all", threads: int = 1) -> Executor:
    """An exported file in ONNX Runtime, with all codes where the file gives them."""
    session = open_session(file, level, threads)
    names = {f"{block}.{point}": (block, point) for block in range(network.config.depth) for point in POINTS}
    given = [output.name for output in session.get_outputs() if output.name in names]

    def run(images: Pixels) -> Watched:
        logits, *codes = session.run([INTEGER_LOGITS, *given], {IMAGES: images})
        seen = {names[name]: one for name, one in zip(given, codes, strict=True)}
        return Watched(logits, Trace(network.config.window, seen))

    return Executor(run, "equal")
