"""A deployed network in NeuroBench: the model that its benchmark runs, and the metrics that its own miss.

NeuroBench counts multiplications of layers. Here a layer adds a weight where a spike arrives, attention counts time
instead of multiplying, and weights have six bits; so operations, sparsity and footprint are those of the deployed
network. It needs `pip install neurobench`, and this folder on Python's path.

    model = LapisModel(lapis.models.load("lapis_tiny.cifar10").network)
    Benchmark(model, loader, [], [], [[PackedFootprint], [ClassificationAccuracy, FirstSpikeOperations]]).run()
"""

from __future__ import annotations

from typing import Any

from neurobench.metrics.abstract import AccumulatedMetric, StaticMetric
from neurobench.models import NeuroBenchModel
from torch import Tensor, nn

from lapis.convert import TorchExecutor, to_model
from lapis.deploy.network import Network
from lapis.energy.counts import deliveries, dense_model, head, patch_embedding
from lapis.errors import LapisError
from lapis.pack import pack
from lapis.trace import Tally

__all__ = ["FirstSpikeOperations", "FirstSpikeSparsity", "LapisModel", "PackedFootprint"]


class LapisModel(NeuroBenchModel):  # type: ignore[misc]
    """images (B, S, S, 3) of bytes, of the network's size  ->  classes (B,), in the deployed arithmetic.

    `tally` counts the spikes of the last batch. NeuroBench's own static metrics see the network rebuilt in FP32.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.tally = Tally()
        self._executor = TorchExecutor(network)
        self._rebuilt = to_model(network)

    def __call__(self, batch: Tensor) -> Tensor:
        logits, trace = self._executor.watch(batch)
        self.tally = Tally()
        self.tally.add(trace)
        classes: Tensor = logits.argmax(dim=1)
        return classes

    def __net__(self) -> nn.Module:
        return self._rebuilt


class PackedFootprint(StaticMetric):  # type: ignore[misc]
    """Bytes of the packed file; NeuroBench's footprint counts four for each weight."""

    def __call__(self, model: LapisModel) -> int:
        return len(pack(_checked(model).network))


class FirstSpikeOperations(AccumulatedMetric):  # type: ignore[misc]
    """Operations per image, under the names of NeuroBench's synaptic operations.

    Effective_ACs: one for each spike and each synapse that it crosses, those of distance and value sum included.
    Effective_MACs: patch embedding and head, which do not spike. Dense: the MACs of the same network without spikes.
    """

    def __init__(self) -> None:
        super().__init__(requires_hooks=False)
        self.reset()

    def reset(self) -> None:
        self._images = self._accumulates = self._macs = self._dense = 0

    def __call__(self, model: LapisModel, preds: Tensor, data: tuple[Tensor, Tensor]) -> dict[str, float]:
        config, tally = _checked(model).network.config, model.tally
        self._images += tally.images
        self._accumulates += sum(deliveries(config, tally).values())
        self._macs += tally.images * (patch_embedding(config) + head(config))
        self._dense += tally.images * dense_model(config)
        return self.compute()

    def compute(self) -> dict[str, float]:
        images = max(1, self._images)
        return {
            "Effective_MACs": self._macs / images,
            "Effective_ACs": self._accumulates / images,
            "Dense": self._dense / images,
        }


class FirstSpikeSparsity(AccumulatedMetric):  # type: ignore[misc]
    """The share of neurons that stay silent, over all measuring points and images."""

    def __init__(self) -> None:
        super().__init__(requires_hooks=False)
        self.reset()

    def reset(self) -> None:
        self._fired = self._neurons = 0

    def __call__(self, model: LapisModel, preds: Tensor, data: tuple[Tensor, Tensor]) -> float:
        tally = _checked(model).tally
        self._fired += sum(tally.fired.values())
        self._neurons += sum(tally.neurons.values())
        return self.compute()

    def compute(self) -> float:
        return 1 - self._fired / self._neurons if self._neurons else 0.0


def _checked(model: Any) -> LapisModel:
    if not isinstance(model, LapisModel):
        raise LapisError(f"this metric is for a LapisModel; {type(model).__name__} was given")
    return model
