"""A network exported without 64-bit types in OpenVINO, for `verify`."""

from __future__ import annotations

import io
from types import ModuleType
from typing import Any

from lapis.bridges.onnx_export import IMAGES, INTEGER_LOGITS
from lapis.bridges.onnx_narrow import export_narrow
from lapis.bridges.onnx_run import THREADS, onnx_codes
from lapis.convert.agreement import Executor
from lapis.deploy.network import Network
from lapis.errors import LapisError
from lapis.preprocess import Pixels
from lapis.trace import POINTS, Trace, Watched

# On processors with bfloat16 it would otherwise compute in that.
PRECISION = {"INFERENCE_PRECISION_HINT": "f32"}


def require_openvino() -> ModuleType:
    """The package openvino, or an error that says how to install it."""
    try:
        import openvino
    except ImportError as error:
        raise LapisError(f"OpenVINO is needed: pip install 'lapis-snn[openvino]' ({error})") from error
    module: ModuleType = openvino
    return module


def compile_file(file: bytes, threads: int = 1) -> Any:
    """An `openvino.CompiledModel` of an exported file on the processor, in float32."""
    core = require_openvino().Core()
    return core.compile_model(core.read_model(io.BytesIO(file)), "CPU", PRECISION | {"INFERENCE_NUM_THREADS": threads})


def openvino_executors(network: Network) -> dict[str, Executor]:
    """The exported file with each number of threads, and a graph that also gives all codes; also in ONNX Runtime."""
    file, watched = export_narrow(network), export_narrow(network, watched=True)
    table = {"openvino codes": openvino_codes(network, watched)}
    for threads in THREADS:
        table[f"openvino {threads}"] = Executor(_logits(network, compile_file(file, threads)), "equal")
    return table | {"onnx of it": onnx_codes(network, watched)}


def openvino_codes(network: Network, watched: bytes) -> Executor:
    """A file that also gives all codes, in OpenVINO."""
    model = compile_file(watched)
    keys = [(block, point) for block in range(network.config.depth) for point in POINTS]

    def run(images: Pixels) -> Watched:
        found = model({IMAGES: images})
        codes = {(block, point): found[f"{block}.{point}"] for block, point in keys}
        return Watched(found[INTEGER_LOGITS], Trace(network.config.window, codes))

    return Executor(run, "equal")


def _logits(network: Network, model: Any) -> Any:
    def run(images: Pixels) -> Watched:
        return Watched(model({IMAGES: images})[INTEGER_LOGITS], Trace(network.config.window))

    return run
