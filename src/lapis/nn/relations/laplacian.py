"""The Laplacian of first-spike latencies, the paper's relation."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lapis.config import LapisConfig
from lapis.deploy.leak import leak_factor, time_constant
from lapis.deploy.network import LONGEST_DELAY, Block, Leak
from lapis.errors import LapisError
from lapis.nn.relations.distance import DistanceRelation
from lapis.ops.attention.torch_native import attention
from lapis.ops.gpu.choice import served_by_triton
from lapis.ops.l1_distance import eager, torch_native
from lapis.relations.laplacian import LaplacianRule


class Laplacian(DistanceRelation):
    """D_ij = sum_c |q_ic - k_jc|: the l1 distance of first-spike latencies."""

    rule = LaplacianRule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        # Real values, in a network without quantizers, have no integer kernel.
        self.l1_distance = torch_native.l1_distance if config.quantize else eager.l1_distance
        self.fused = config.quantize
        self.codes = (config.low("q"), config.window)

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        return self.l1_distance(q, k)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """As every relation, but without an N x N matrix in memory: on a GPU, and where no gradient is needed.

        Narrow affinities are rounded one by one, so their matrix is made.
        """
        on_cpu_with_gradient = torch.is_grad_enabled() and not served_by_triton(q)
        if on_cpu_with_gradient or not self.fused or not self.is_ready or self.narrow:
            return super().mix(q, k, v)
        delay = None if self.position is None else self.position.delay(self.tau)
        return attention(q, k, v, self.tau, self.row_scale, delay, self.codes)

    def fold(self, distances: int) -> Leak:
        mantissa, exponent = leak_factor(self.tau.detach().cpu().numpy().astype(np.float32))
        if self.position is None:
            return Leak(mantissa, exponent)
        delay = self.position.steps(self.tau).detach().cpu().numpy()
        if float(delay.max()) > LONGEST_DELAY:
            raise LapisError(f"a position delay of {int(delay.max())} steps was learned; a file holds {LONGEST_DELAY}")
        return Leak(mantissa, exponent, delay.astype(np.uint16))

    @torch.no_grad()
    def unfold(self, block: Block) -> None:
        assert block.leak is not None
        tau = time_constant(block.leak.mantissa, block.leak.exponent)
        self.log_tau.copy_(torch.from_numpy(np.log(tau)))
        if self.position is not None and block.leak.delay is not None:
            self.position.table.copy_(torch.from_numpy(-block.leak.delay.astype(np.float64) / tau))
