"""In the real NeuroBench a deployed network gives its own answers, and its counts are those of the simulator."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from lapis.deploy import integer, simulate
from lapis.deploy.network import Network
from lapis.errors import LapisError
from lapis.pack import pack
from tests.networks import Pixels, small_config, small_network


@pytest.fixture
def bridge(timm: ModuleType) -> ModuleType:
    """The bridge; the fixture timm declares what a torchvision of another build misses, which NeuroBench loads too."""
    pytest.importorskip("neurobench", reason="neurobench is not installed: pip install neurobench")
    import lapis.bridges.neurobench

    return lapis.bridges.neurobench


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
