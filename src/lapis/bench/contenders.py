"""Engines that run a vision transformer of one shape, each in a process of its own.

`python -m lapis.bench.contenders prepare NAME SIZES FOLDER` makes the file that the engine loads (exporting and
quantizing take memory that running does not); `... serve NAME SIZES FOLDER THREADS BATCH` loads it and then times one
batch for every line that it reads. All but `lapis` run the dense network of the same shape, with random weights.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lapis.config import LapisConfig
from lapis.errors import LapisError

# Images that quantizers with a calibration see; their values do not matter for speed.
CALIBRATION = 4
# How far GELU's inputs are moved down in the quiet network; its neurons then fire at .13 (ViT-S shape).
QUIETER = 1.1

Run = Callable[[], Any]


@dataclass(frozen=True)
class Contender:
    """One engine: the modules that it needs, how its file is made, and how that file is loaded to run."""

    name: str
    label: str
    modules: tuple[str, ...]
    prepare: Callable[[LapisConfig, Path], None]
    load: Callable[[LapisConfig, Path, int, int], Run]

    def missing(self) -> tuple[str, ...]:
        return tuple(name for name in self.modules if importlib.util.find_spec(name) is None)


def bench_network(config: LapisConfig, quiet: bool) -> Any:
    """A random network, busy as it comes, or quiet behind GELU.

    Random networks fire at .47 behind their norms and at .65 behind GELU (ViT-S shape). One short training run of
    DeiT-Ti with unsigned codes showed .44 to .47 and .11; the quiet network imitates that, and nothing says that
    another trained network will. The event-driven layer helps only the quiet one, so both are timed.
    """
    from lapis.deploy.synthetic import random_network

    network = random_network(config)
    if not quiet:
        return network
    blocks = tuple(
        dataclasses.replace(block, fc1=dataclasses.replace(block.fc1, shift=block.fc1.shift - np.float32(QUIETER)))
        for block in network.blocks
    )
    return dataclasses.replace(network, blocks=blocks)


def _prepare_lapis(quiet: bool) -> Callable[[LapisConfig, Path], None]:
    def prepare(config: LapisConfig, folder: Path) -> None:
        from lapis import pack

        pack.save(folder / f"lapis-{'quiet' if quiet else 'busy'}.safetensors", bench_network(config, quiet))

    return prepare


def _load_lapis(file: str) -> Callable[[LapisConfig, Path, int, int], Run]:
    def load(config: LapisConfig, folder: Path, threads: int, batch: int) -> Run:
        from lapis.runtime import Session

        session = Session(folder / file, threads=threads)
        shape = (batch, config.image_size, config.image_size, 3)
        images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        return lambda: session.run(images)

    return load


def dense(config: LapisConfig) -> Any:
    """The plain vision transformer of this shape, in torch's own best parts."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            d = config.width
            self.norm1, self.norm2 = nn.LayerNorm(d, 1e-6), nn.LayerNorm(d, 1e-6)
            self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.fc1, self.fc2 = nn.Linear(d, config.hidden), nn.Linear(config.hidden, d)

        def forward(self, x: torch.Tensor) -> Any:
            batch, tokens, d = x.shape
            qkv = self.qkv(self.norm1(x)).reshape(batch, tokens, 3, config.heads, d // config.heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, d)
            x = x + self.proj(mixed)
            out: torch.Tensor = x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x))))
            return out

    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            d = config.width
            self.patch = nn.Conv2d(3, d, config.patch_size, config.patch_size)
            self.token = nn.Parameter(torch.zeros(1, 1, d))
            self.position = nn.Parameter(0.02 * torch.randn(1, config.tokens, d))
            self.blocks = nn.Sequential(*(Block() for _ in range(config.depth)))
            self.norm, self.head = nn.LayerNorm(d, 1e-6), nn.Linear(d, config.classes)

        def forward(self, x: torch.Tensor) -> Any:
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
            logits: torch.Tensor = self.head(self.norm(self.blocks(x))[:, 0])
            return logits

    torch.manual_seed(0)
    return Dense().eval()


def prepare_torch(config: LapisConfig, folder: Path) -> None:
    import torch

    torch.save(dense(config).state_dict(), folder / "dense.pt")


def load_torch(config: LapisConfig, folder: Path, threads: int, batch: int) -> Run:
    import torch

    torch.set_num_threads(threads)
    model = dense(config)
    model.load_state_dict(torch.load(folder / "dense.pt"))
    images = torch.randn(batch, 3, config.image_size, config.image_size)

    def run() -> Any:
        with torch.inference_mode():
            return model(images)

    return run


def prepare_nothing(config: LapisConfig, folder: Path) -> None:
    """Compiled programs cannot be kept as files; they are made where they run."""


def load_torch_int8(config: LapisConfig, folder: Path, threads: int, batch: int) -> Run:
    import torch
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    torch.set_num_threads(threads)
    images = torch.randn(batch, 3, config.image_size, config.image_size)
    with torch.no_grad():
        exported = torch.export.export(dense(config), (images,)).module()
        quantizer = x86.X86InductorQuantizer()
        quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
        prepared: Any = prepare_pt2e(exported, quantizer)
        prepared(images)
        converted = convert_pt2e(prepared)
        move_exported_model_to_eval(converted)
        import torch._inductor.config as inductor

        inductor.freezing = True
        compiled: Any = torch.compile(converted)
        compiled(images)

    def run() -> Any:
        with torch.no_grad():
            return compiled(images)

    return run


def prepare_onnx(config: LapisConfig, folder: Path) -> None:
    import onnx
    import torch

    images = torch.randn(2, 3, config.image_size, config.image_size)
    torch.onnx.export(
        dense(config), (images,), str(folder / "dense.onnx"), input_names=["images"],
        dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},), dynamo=True, verbose=False,
    )  # fmt: skip
    # The exporter notes shapes of values that quantizers then transpose, and trip over.
    model = onnx.load(folder / "dense.onnx")
    del model.graph.value_info[:]
    onnx.save(model, folder / "dense.onnx")


def prepare_onnx_dynamic(config: LapisConfig, folder: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    prepare_onnx(config, folder)
    quantize_dynamic(folder / "dense.onnx", folder / "dynamic.onnx", weight_type=QuantType.QInt8)


def prepare_onnx_static(config: LapisConfig, folder: Path) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = CALIBRATION

        def get_next(self) -> Any:
            self.left -= 1
            return None if self.left < 0 else {"images": _noise(config, 1)}

    prepare_onnx(config, folder)
    quantize_static(
        folder / "dense.onnx", folder / "static.onnx", Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm", "Conv"],
    )  # fmt: skip


def _load_onnx(file: str) -> Callable[[LapisConfig, Path, int, int], Run]:
    def load(config: LapisConfig, folder: Path, threads: int, batch: int) -> Run:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(folder / file), options, providers=["CPUExecutionProvider"])
        feed = {"images": _noise(config, batch)}
        return lambda: session.run(None, feed)

    return load


DENSE_XML = "dense.xml"


def prepare_openvino(config: LapisConfig, folder: Path) -> None:
    import openvino
    import torch

    images = torch.randn(1, 3, config.image_size, config.image_size)
    openvino.save_model(openvino.convert_model(dense(config), example_input=images), folder / DENSE_XML, False)


def prepare_openvino_int8(config: LapisConfig, folder: Path) -> None:
    import nncf
    import openvino

    prepare_openvino(config, folder)
    model = openvino.Core().read_model(folder / DENSE_XML)
    data = nncf.Dataset([_noise(config, 1) for _ in range(CALIBRATION)])
    kind = nncf.ModelType.TRANSFORMER
    openvino.save_model(
        nncf.quantize(model, data, model_type=kind, subset_size=CALIBRATION), folder / "int8.xml", False
    )


def _load_openvino(file: str) -> Callable[[LapisConfig, Path, int, int], Run]:
    def load(config: LapisConfig, folder: Path, threads: int, batch: int) -> Run:
        import openvino

        core = openvino.Core()
        model = core.read_model(folder / file)
        model.reshape([batch, 3, config.image_size, config.image_size])
        settings: dict[str, Any] = {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
        }
        # Left alone it computes in bf16 where there is AMX, by reference code if it may not use that.
        if file == DENSE_XML or "ONEDNN_MAX_CPU_ISA" in os.environ:
            settings["INFERENCE_PRECISION_HINT"] = "f32"
        request = core.compile_model(model, "CPU", settings).create_infer_request()
        feed = [_noise(config, batch)]
        return lambda: request.infer(feed, share_inputs=True)

    return load


def _noise(config: LapisConfig, batch: int) -> Any:
    shape = (batch, 3, config.image_size, config.image_size)
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


_ONNX = ("torch", "onnx", "onnxscript", "onnxruntime")
CONTENDERS: dict[str, Contender] = {
    contender.name: contender
    for contender in (
        Contender("lapis", "lapis 6 bit", (), _prepare_lapis(True), _load_lapis("lapis-quiet.safetensors")),
        Contender("lapis_busy", "lapis 6 bit, busy", (), _prepare_lapis(False), _load_lapis("lapis-busy.safetensors")),
        Contender("torch", "PyTorch eager fp32", ("torch",), prepare_torch, load_torch),
        Contender(
            "torch_int8", "PyTorch compiled int8 (pt2e static)", ("torch", "torchao"), prepare_nothing, load_torch_int8
        ),
        Contender("onnx", "ONNX Runtime fp32", _ONNX, prepare_onnx, _load_onnx("dense.onnx")),
        Contender("onnx_dynamic", "ONNX Runtime int8 dynamic", _ONNX, prepare_onnx_dynamic, _load_onnx("dynamic.onnx")),
        Contender("onnx_static", "ONNX Runtime int8 static", _ONNX, prepare_onnx_static, _load_onnx("static.onnx")),
        Contender("openvino", "OpenVINO fp32", ("torch", "openvino"), prepare_openvino, _load_openvino(DENSE_XML)),
        Contender(
            "openvino_int8", "OpenVINO int8 (NNCF)", ("torch", "openvino", "nncf"), prepare_openvino_int8,
            _load_openvino("int8.xml"),
        ),
    )
}  # fmt: skip


def peak_memory_mb() -> float:
    """The most memory that this process ever held."""
    with open("/proc/self/status", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) * 1024 / 1e6
    raise LapisError("the kernel does not tell a process's peak memory (VmHWM)")


def serve(contender: Contender, config: LapisConfig, folder: Path, threads: int, batch: int) -> None:
    """Load, say so, then answer every line with the seconds of one batch; a last line tells the peak memory."""
    started = time.process_time(), time.perf_counter()
    run = contender.load(config, folder, threads, batch)
    loaded = {"load_cpu_s": time.process_time() - started[0], "load_s": time.perf_counter() - started[1]}
    run()
    _say({"ready": True, **loaded})
    for _ in sys.stdin:
        cpu, wall = time.process_time(), time.perf_counter()
        run()
        wall = time.perf_counter() - wall
        _say({"wall_s": wall, "cpu_s": time.process_time() - cpu})
    _say({"peak_mb": peak_memory_mb()})


def _say(fields: dict[str, Any]) -> None:
    _OUT.write(json.dumps(fields) + "\n")
    _OUT.flush()


_OUT = sys.stdout


def main(words: list[str]) -> None:
    # Engines print what they like; only this process's own lines may reach the pipe.
    global _OUT
    _OUT = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    verb, name, fields, folder = words[:4]
    contender, config = CONTENDERS[name], LapisConfig.from_dict(json.loads(fields))
    with contextlib.redirect_stdout(sys.stderr):
        if verb == "prepare":
            contender.prepare(config, Path(folder))
        else:
            serve(contender, config, Path(folder), int(words[4]), int(words[5]))


if __name__ == "__main__":
    main(sys.argv[1:])
