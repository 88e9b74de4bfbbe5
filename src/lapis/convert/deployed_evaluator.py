"""A trained or deployed network as torch evaluates it: bytes to logits, in its deployed arithmetic if it has one."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lapis.convert.torch_executor import TorchExecutor, as_executor
from lapis.deploy.network import Network
from lapis.nn import LapisViT
from lapis.nn.pixels import normalise
from lapis.preprocess import Preprocess
from lapis.trace import Watched


class DeployedEvaluator(nn.Module):
    """images (B, S, S, 3) of bytes  ->  real logits (B, classes), in FP32 and never under autocast.

    `exact` is whether they equal those of the deployed network, bit for bit.
    """

    def __init__(self, model: LapisViT | Network, preprocess: Preprocess) -> None:
        super().__init__()
        self.config, self.preprocess = model.config, preprocess
        self.runner: LapisViT | TorchExecutor
        if isinstance(model, Network):
            self.runner = TorchExecutor(model)
        else:
            self.runner = as_executor(model, preprocess) or model
            self.train(model.training)
        self.exact = isinstance(self.runner, TorchExecutor)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        if isinstance(self.runner, TorchExecutor):
            return real_logits(self.runner(images), self.runner.network)
        with torch.autocast(images.device.type, enabled=False):
            logits: Tensor = self.runner(normalise(images, self.preprocess))
        return logits

    def watch(self, images: Tensor) -> Watched:
        """Real logits, and the codes at every measuring point."""
        if isinstance(self.runner, TorchExecutor):
            logits, trace = self.runner.watch(images)
            return Watched(real_logits(logits, self.runner.network), trace)
        return self.runner.watch(normalise(images, self.preprocess))


def real_logits(logits: Tensor, network: Network) -> Tensor:
    """Integer logits as the real numbers that they stand for."""
    return torch.from_numpy(network.real_logits(logits.cpu().numpy()))
