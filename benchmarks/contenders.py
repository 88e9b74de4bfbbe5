"""The engines that `benchmarks.engine` compares, and how each is prepared and loaded.

Preparing writes the file that an engine loads; it is a separate step because exporting and quantizing need more memory
than running. All engines except ours run the dense network of the same shape with random weights.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.networks import dot_network, quiet_network, random_images, sparse_network, sparse_network_dense
from lapis import pack
from lapis.config import LapisConfig
from lapis.deploy.network import Network
from lapis.runtime import Session

# Images for calibration; their values do not affect the speed.
CALIBRATION_IMAGES = 4
LAPIS_FILE = "lapis.safetensors"
DOT_FILE = "lapis-dot.safetensors"
SPARSE_FILE, SPARSE_DENSE_FILE = "lapis-sparse.safetensors", "lapis-sparse-dense.safetensors"
TORCH_FILE = "dense.pt"
ONNX_FILE, ONNX_INT8_FILE = "dense.onnx", "int8.onnx"
OPENVINO_FILE = "int8.xml"
# Set for an engine that must not use AMX (`benchmarks.workers`).
ISA_LIMIT = "ONEDNN_MAX_CPU_ISA"


@dataclass(frozen=True)
class Workload:
    """What an engine runs: a network of this shape, with `batch` images per call, on `threads` threads."""

    config: LapisConfig
    threads: int
    batch: int


Run = Callable[[], Any]
Prepare = Callable[[LapisConfig, Path], None]
Load = Callable[[Workload, Path], Run]


@dataclass(frozen=True)
class Contender:
    """One engine: the modules that it needs, how its file is made, and how that file is loaded to run."""

    label: str
    modules: tuple[str, ...]
    prepare: Prepare
    load: Load

    def missing(self) -> tuple[str, ...]:
        """The modules that are not installed."""
        return tuple(name for name in self.modules if importlib.util.find_spec(name) is None)


def _prepare_lapis(make: Callable[[LapisConfig], Network], file: str) -> Prepare:
    def prepare(config: LapisConfig, folder: Path) -> None:
        pack.save(folder / file, make(config))

    return prepare


def _load_lapis(file: str) -> Load:
    def load(workload: Workload, folder: Path) -> Run:
        session = Session(folder / file, threads=workload.threads)
        images = random_images(workload.config, workload.batch)
        return lambda: session.run(images)

    return load


def _prepare_torch(config: LapisConfig, folder: Path) -> None:
    import torch

    from benchmarks.dense import dense

    torch.save(dense(config).state_dict(), folder / TORCH_FILE)


def _load_torch(workload: Workload, folder: Path) -> Run:
    import torch

    from benchmarks.dense import dense

    torch.set_num_threads(workload.threads)
    model = dense(workload.config)
    model.load_state_dict(torch.load(folder / TORCH_FILE))
    images = torch.from_numpy(_noise(workload.config, workload.batch))

    def run() -> Any:
        with torch.inference_mode():
            return model(images)

    return run


def _prepare_nothing(config: LapisConfig, folder: Path) -> None:
    """Compiled programs cannot be stored in files; they are made when they are loaded."""


def _load_torch_int8(workload: Workload, folder: Path) -> Run:
    import torch
    import torch._inductor.config as inductor
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    from benchmarks.dense import dense

    torch.set_num_threads(workload.threads)
    images = torch.from_numpy(_noise(workload.config, workload.batch))
    with torch.no_grad():
        exported = torch.export.export(dense(workload.config), (images,)).module()
        quantizer = x86.X86InductorQuantizer()
        quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
        prepared: Any = prepare_pt2e(exported, quantizer)
        prepared(images)
        converted = convert_pt2e(prepared)
        move_exported_model_to_eval(converted)
        inductor.freezing = True
        compiled: Any = torch.compile(converted)
        compiled(images)

    def run() -> Any:
        with torch.no_grad():
            return compiled(images)

    return run


def _prepare_onnx_int8(config: LapisConfig, folder: Path) -> None:
    from benchmarks.dense import dense

    write_onnx(dense(config), config, folder)


def write_onnx(model: Any, config: LapisConfig, folder: Path) -> None:
    """A torch network as ONNX files, in float32 and in int8."""
    import onnx
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    images = torch.from_numpy(_noise(config, 2))
    torch.onnx.export(
        model, (images,), str(folder / ONNX_FILE), input_names=["images"],
        dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},), dynamo=True, verbose=False,
    )  # fmt: skip
    # The exporter stores shapes of values; the quantizer transposes the values and then fails.
    model = onnx.load(folder / ONNX_FILE)
    del model.graph.value_info[:]
    onnx.save(model, folder / ONNX_FILE)
    quantize_dynamic(folder / ONNX_FILE, folder / ONNX_INT8_FILE, weight_type=QuantType.QInt8)


def _load_onnx_int8(workload: Workload, folder: Path) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = workload.threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / ONNX_INT8_FILE), options, providers=["CPUExecutionProvider"])
    feed = {"images": _noise(workload.config, workload.batch)}
    return lambda: session.run(None, feed)


def _prepare_openvino_int8(config: LapisConfig, folder: Path) -> None:
    import nncf
    import openvino
    import torch

    from benchmarks.dense import dense

    model = openvino.convert_model(dense(config), example_input=torch.from_numpy(_noise(config, 1)))
    data = nncf.Dataset([_noise(config, 1) for _ in range(CALIBRATION_IMAGES)])
    quantized = nncf.quantize(model, data, model_type=nncf.ModelType.TRANSFORMER, subset_size=CALIBRATION_IMAGES)
    openvino.save_model(quantized, folder / OPENVINO_FILE, False)


def _load_openvino_int8(workload: Workload, folder: Path) -> Run:
    import openvino

    core, size = openvino.Core(), workload.config.image_size
    model = core.read_model(folder / OPENVINO_FILE)
    model.reshape([workload.batch, 3, size, size])
    properties: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": workload.threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
    }
    # Otherwise it computes with slow reference code if AMX is not allowed.
    if ISA_LIMIT in os.environ:
        properties["INFERENCE_PRECISION_HINT"] = "f32"
    request = core.compile_model(model, "CPU", properties).create_infer_request()
    feed = [_noise(workload.config, workload.batch)]
    return lambda: request.infer(feed, share_inputs=True)


def _noise(config: LapisConfig, batch: int) -> npt.NDArray[np.float32]:
    shape = (batch, 3, config.image_size, config.image_size)
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


OURS = "lapis"
# The paper's activities, with the layers that the engine chooses and with dense layers only.
SPARSE, SPARSE_DENSE = "lapis_sparse", "lapis_sparse_dense"
CONTENDERS = {
    OURS: Contender("lapis 6 bit", (), _prepare_lapis(quiet_network, LAPIS_FILE), _load_lapis(LAPIS_FILE)),
    "lapis_dot": Contender(
        "lapis 6 bit, dot products", (), _prepare_lapis(dot_network, DOT_FILE), _load_lapis(DOT_FILE)
    ),
    SPARSE: Contender("lapis 6 bit, sparse", (), _prepare_lapis(sparse_network, SPARSE_FILE), _load_lapis(SPARSE_FILE)),
    SPARSE_DENSE: Contender(
        "lapis 6 bit, sparse, dense layers",
        (),
        _prepare_lapis(sparse_network_dense, SPARSE_DENSE_FILE),
        _load_lapis(SPARSE_DENSE_FILE),
    ),
    "torch": Contender("PyTorch eager fp32", ("torch",), _prepare_torch, _load_torch),
    "torch_int8": Contender(
        "PyTorch compiled int8 (pt2e static)", ("torch", "torchao"), _prepare_nothing, _load_torch_int8
    ),
    "onnx_int8": Contender(
        "ONNX Runtime int8 dynamic",
        ("torch", "onnx", "onnxscript", "onnxruntime"),
        _prepare_onnx_int8,
        _load_onnx_int8,
    ),
    "openvino_int8": Contender(
        "OpenVINO int8 (NNCF)", ("torch", "openvino", "nncf"), _prepare_openvino_int8, _load_openvino_int8
    ),
}
# The engines that run the dense network: all except ours.
OTHER_ENGINES = tuple(name for name in CONTENDERS if not name.startswith(OURS))
