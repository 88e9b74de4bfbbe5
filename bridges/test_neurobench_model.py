"""In the real NeuroBench a deployed network gives its own answers, and its counts are those of the simulator."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from lapis import models
from lapis.deploy import integer
from lapis.deploy.network import Network
from lapis.deploy.simulate import simulate
from lapis.errors import LapisError
from lapis.pack import pack
from tests.docs.given import make
from tests.networks import Pixels, small_config, small_network

# What a torchvision of another build than torch misses, and NeuroBench loads.
DECLARED = """
import torch
for name in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, name):
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
RUN = (
    DECLARED
    + """
import runpy, sys
del sys.argv[0]
sys.path.insert(0, str(__import__("pathlib").Path(sys.argv[0]).parent))
runpy.run_path(sys.argv[0], None, "__main__")
"""
)


@pytest.fixture
def bridge() -> ModuleType:
    pytest.importorskip("neurobench", reason="neurobench is not installed: pip install neurobench")
    exec(DECLARED, {})
    import neurobench_model

    return neurobench_model


@pytest.fixture
def deployed() -> tuple[Network, Pixels]:
    return small_network(small_config(), 3)


@pytest.fixture
def measure(bridge: ModuleType, deployed: tuple[Network, Pixels]) -> Callable[[int], dict[str, Any]]:
    """measure(batch): NeuroBench's results; two of the three labels are right."""
    from neurobench.benchmarks import Benchmark
    from neurobench.metrics.static import ParameterCount
    from neurobench.metrics.workload import ClassificationAccuracy

    network, images = deployed
    labels = integer.run(network, images).argmax(axis=1)
    labels[0] = (labels[0] + 1) % network.config.classes
    data = TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))
    workload = [ClassificationAccuracy, bridge.FirstSpikeOperations, bridge.FirstSpikeSparsity]

    def run(batch: int) -> dict[str, Any]:
        metrics = [[bridge.PackedFootprint, ParameterCount], workload]
        benchmark = Benchmark(bridge.LapisModel(network), DataLoader(data, batch), [], [], metrics)
        results: dict[str, Any] = benchmark.run(quiet=True)
        return results

    return run


def test_the_benchmark_counts_what_the_simulator_counts(
    measure: Callable[[int], dict[str, Any]], deployed: tuple[Network, Pixels]
) -> None:
    network, images = deployed
    simulated = simulate(network, images)
    operations = sum(simulated.events.operations.values())
    found = measure(3)
    assert found["ClassificationAccuracy"] == pytest.approx(2 / 3)
    assert found["FirstSpikeOperations"]["Effective_ACs"] == operations / len(images)
    assert found["PackedFootprint"] == len(pack(network))
    codes = [np.asarray(one) for one in simulated.trace.codes.values()]
    silent = sum(int((one == 0).sum()) for one in codes) / sum(one.size for one in codes)
    assert found["FirstSpikeSparsity"] == pytest.approx(silent)
    assert found["ParameterCount"] > 0


def test_results_do_not_depend_on_the_batch(measure: Callable[[int], dict[str, Any]]) -> None:
    whole, single = measure(3), measure(1)
    assert whole.keys() == single.keys()
    for name, value in whole.items():
        assert single[name] == pytest.approx(value), name


def test_metrics_refuse_a_model_that_they_cannot_count(bridge: ModuleType) -> None:
    with pytest.raises(LapisError, match="for a LapisModel; object was given"):
        bridge.PackedFootprint()(object())


def test_the_example_prints_its_table_for_the_packaged_network(bridge: ModuleType, tmp_path: Path) -> None:
    make("pictures", tmp_path)
    words = [sys.executable, "-c", RUN, str(Path(__file__).with_name("neurobench_table.py")), "pictures/val"]
    printed = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    table = dict(line.split(maxsplit=1) for line in printed.splitlines())
    assert int(table["PackedFootprint"]) == len(pack(models.load("lapis_tiny.cifar10").network))
    assert 0 < float(table["FirstSpikeSparsity"]) < 1
    assert "Effective_ACs" in table["FirstSpikeOperations"]
