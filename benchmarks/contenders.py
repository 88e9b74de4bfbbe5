"""The engines that `benchmarks.engine` and `benchmarks.trained` compare, and how each is prepared and loaded.

Preparing writes the file that an engine loads; it is a separate step because exporting and quantizing need more memory
than running. All engines except ours run a dense network: the one in the folder, with the images that are there, else
one of the same shape with random weights, on random images.
"""

from __future__ import annotations

import importlib.util
import json
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
from lapis.preprocess import Pixels, Preprocess
from lapis.runtime import Session

# Random images for calibration where the folder has none; their values do not affect the speed.
CALIBRATION_IMAGES = 4
LAPIS_FILE = "lapis.safetensors"
DOT_FILE = "lapis-dot.safetensors"
SPARSE_FILE, SPARSE_DENSE_FILE = "lapis-sparse.safetensors", "lapis-sparse-dense.safetensors"
TORCH_FILE = "dense.pt"
ONNX_FILE, ONNX_INT8_FILE, ONNX_STATIC_FILE = "dense.onnx", "int8.onnx", "static.onnx"
OPENVINO_FILE = "int8.xml"
# What a folder has where the network is trained, beside its weights: pixels as the network takes them, and their rule.
IMAGES_FILE, LABELS_FILE, CALIBRATION_FILE, RULE_FILE = "images.npy", "labels.npy", "calibration.npy", "rule.json"
# Set for an engine that must not use AMX (`benchmarks.workers`).
ISA_LIMIT = "ONEDNN_MAX_CPU_ISA"


@dataclass(frozen=True)
class Workload:
    """What an engine runs: a network of this shape, with `batch` images per call, on `threads` threads."""

    config: LapisConfig
    threads: int
    batch: int


# From a batch, as the engine takes it, to logits.
Run = Callable[[Any], Any]
Prepare = Callable[[LapisConfig, Path], None]
Load = Callable[[Workload, Path], Run]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Contender:
    """One engine: the modules that it needs, how its files are made, and how they are loaded to run.

    Ours takes bytes; the others take floats, which are made before the time is taken.
    """

    label: str
    modules: tuple[str, ...]
    prepare: Prepare
    load: Load
    files: tuple[str, ...] = ()
    takes_bytes: bool = False

    def missing(self) -> tuple[str, ...]:
        """The modules that are not installed."""
        return tuple(name for name in self.modules if importlib.util.find_spec(name) is None)


def _prepare_lapis(make: Callable[[LapisConfig], Network], file: str) -> Prepare:
    def prepare(config: LapisConfig, folder: Path) -> None:
        pack.save(folder / file, make(config))

    return prepare


def _load_lapis(file: str) -> Load:
    def load(workload: Workload, folder: Path) -> Run:
        return runner(Session(folder / file, threads=workload.threads))

    return load


def runner(session: Session) -> Run:
    """A run on pixels as the network takes them; `Session.run` might crop and resize them once more."""
    return session.run if session._engine is None else session._engine.run


def _dense(config: LapisConfig, folder: Path) -> Any:
    """The dense network of the folder, else a random one."""
    import torch

    from benchmarks.dense import dense

    model = dense(config)
    if (folder / TORCH_FILE).is_file():
        model.load_state_dict(torch.load(folder / TORCH_FILE))
    return model


def _prepare_nothing(config: LapisConfig, folder: Path) -> None:
    """Weights are there, or random; compiled programs are made when they are loaded."""


def _load_torch(workload: Workload, folder: Path) -> Run:
    import torch

    torch.set_num_threads(workload.threads)
    return _torch_run(_dense(workload.config, folder))


def _load_torch_compiled(workload: Workload, folder: Path) -> Run:
    import torch
    import torch._inductor.config as inductor

    torch.set_num_threads(workload.threads)
    # Weights are laid out for the processor once.
    inductor.freezing = True
    return _torch_run(torch.compile(_dense(workload.config, folder)))


def _torch_run(model: Any) -> Run:
    import torch

    def run(images: Floats) -> Any:
        with torch.no_grad():
            return model(torch.from_numpy(images)).numpy()

    return run


def _load_torch_int8(workload: Workload, folder: Path) -> Run:
    import torch
    import torch._inductor.config as inductor
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    torch.set_num_threads(workload.threads)
    data = [torch.from_numpy(part) for part in calibration(workload.config, folder, workload.batch)]
    with torch.no_grad():
        exported = torch.export.export(_dense(workload.config, folder), (data[0],)).module()
        quantizer = x86.X86InductorQuantizer()
        quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
        prepared: Any = prepare_pt2e(exported, quantizer)
        for images in data:
            prepared(images)
        converted = convert_pt2e(prepared)
        move_exported_model_to_eval(converted)
        inductor.freezing = True
        return _torch_run(torch.compile(converted))


def _prepare_onnx_int8(config: LapisConfig, folder: Path) -> None:
    write_onnx(_dense(config, folder), config, folder)


def _prepare_onnx_static(config: LapisConfig, folder: Path) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(calibration(config, folder))

        def get_next(self) -> dict[str, Floats] | None:
            images = next(self.left, None)
            return None if images is None else {"images": images}

    ready = folder / "preprocessed.onnx"
    _export_onnx(_dense(config, folder), config, folder)
    quant_pre_process(folder / ONNX_FILE, ready, skip_symbolic_shape=True)
    # Linear layers only: on photographs, products of activations in int8 too agreed less often with float32.
    quantize_static(
        ready, folder / ONNX_STATIC_FILE, Reader(), QuantFormat.QOperator, ["MatMul", "Gemm"], per_channel=True,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, extra_options={"MatMulConstBOnly": True},
    )  # fmt: skip


def write_onnx(model: Any, config: LapisConfig, folder: Path) -> None:
    """A torch network as ONNX files, in float32 and in int8."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    _export_onnx(model, config, folder)
    quantize_dynamic(folder / ONNX_FILE, folder / ONNX_INT8_FILE, weight_type=QuantType.QInt8)


def _export_onnx(model: Any, config: LapisConfig, folder: Path) -> None:
    import onnx
    import torch

    torch.onnx.export(
        model, (torch.from_numpy(floats(random_images(config, 2), folder)),), str(folder / ONNX_FILE),
        input_names=["images"], dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},), dynamo=True,
        verbose=False,
    )  # fmt: skip
    # The exporter stores shapes of values; the quantizer transposes the values and then fails.
    exported = onnx.load(folder / ONNX_FILE)
    del exported.graph.value_info[:]
    onnx.save(exported, folder / ONNX_FILE)


def _load_onnx(file: str) -> Load:
    def load(workload: Workload, folder: Path) -> Run:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = workload.threads
        options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(folder / file), options, providers=["CPUExecutionProvider"])
        return lambda images: session.run(None, {"images": images})[0]

    return load


def _prepare_openvino_int8(config: LapisConfig, folder: Path) -> None:
    import nncf
    import openvino
    import torch

    data = calibration(config, folder)
    model = openvino.convert_model(_dense(config, folder), example_input=torch.from_numpy(data[0]))
    quantized = nncf.quantize(model, nncf.Dataset(data), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(data))
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
    return lambda images: request.infer([images], share_inputs=True)[0]


def stored(config: LapisConfig, folder: Path, file: str, count: int) -> Pixels:
    """The pixels of a file of the folder, which stay on the disk until they are used, else `count` random images."""
    pixels: Pixels = np.load(folder / file, "r") if (folder / file).is_file() else random_images(config, count)
    return pixels


def floats(pixels: Pixels, folder: Path) -> Floats:
    """Normalised floats (n, 3, height, width) of pixels (n, height, width, 3), by the folder's rule or ImageNet's."""
    file = folder / RULE_FILE
    rule = Preprocess.from_dict(json.loads(file.read_text())) if file.is_file() else Preprocess(pixels.shape[1])
    mean, std = np.array(rule.mean, np.float32), np.array(rule.std, np.float32)
    return np.ascontiguousarray(((pixels / np.float32(255) - mean) / std).transpose(0, 3, 1, 2))


def calibration(config: LapisConfig, folder: Path, batch: int = 1) -> list[Floats]:
    """The images for calibration, in batches."""
    pixels = stored(config, folder, CALIBRATION_FILE, CALIBRATION_IMAGES * batch)
    return [floats(pixels[at : at + batch], folder) for at in range(0, len(pixels) - batch + 1, batch)]


OURS = "lapis"
# The paper's activities, with the layers that the engine chooses and with dense layers only.
SPARSE, SPARSE_DENSE = "lapis_sparse", "lapis_sparse_dense"


def packed_contender(label: str, file: str, make: Callable[[LapisConfig], Network] | None = None) -> Contender:
    """Our engine on a packed file of the folder, which `make` makes if it is not there already."""
    prepare = _prepare_nothing if make is None else _prepare_lapis(make, file)
    return Contender(label, (), prepare, _load_lapis(file), (file,), takes_bytes=True)


_EXPORT = ("torch", "onnx", "onnxscript", "onnxruntime")
CONTENDERS = {
    OURS: packed_contender("lapis 6 bit", LAPIS_FILE, quiet_network),
    "lapis_dot": packed_contender("lapis 6 bit, dot products", DOT_FILE, dot_network),
    SPARSE: packed_contender("lapis 6 bit, sparse", SPARSE_FILE, sparse_network),
    SPARSE_DENSE: packed_contender("lapis 6 bit, sparse, dense layers", SPARSE_DENSE_FILE, sparse_network_dense),
    "torch": Contender("PyTorch eager fp32", ("torch",), _prepare_nothing, _load_torch, (TORCH_FILE,)),
    "torch_compiled": Contender(
        "PyTorch compiled fp32", ("torch",), _prepare_nothing, _load_torch_compiled, (TORCH_FILE,)
    ),
    "torch_int8": Contender(
        "PyTorch compiled int8 (pt2e static)", ("torch", "torchao"), _prepare_nothing, _load_torch_int8
    ),
    "onnx_int8": Contender(
        "ONNX Runtime int8 dynamic", _EXPORT, _prepare_onnx_int8, _load_onnx(ONNX_INT8_FILE), (ONNX_INT8_FILE,)
    ),
    "onnx_static": Contender(
        "ONNX Runtime int8 static", _EXPORT, _prepare_onnx_static, _load_onnx(ONNX_STATIC_FILE), (ONNX_STATIC_FILE,)
    ),
    "openvino_int8": Contender(
        "OpenVINO int8 (NNCF)",
        ("torch", "openvino", "nncf"),
        _prepare_openvino_int8,
        _load_openvino_int8,
        (OPENVINO_FILE, OPENVINO_FILE.replace(".xml", ".bin")),
    ),
}
# The engines that run the dense network: all except ours.
OTHER_ENGINES = tuple(name for name in CONTENDERS if not name.startswith(OURS))


def contender_of(name: str) -> Contender:
    """An engine by its name, or ours on a packed file of the folder."""
    return CONTENDERS[name] if name in CONTENDERS else packed_contender(Path(name).stem, name)
