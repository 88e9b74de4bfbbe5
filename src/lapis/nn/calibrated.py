"""The base of quantizers and relations: their parameters are set from the first data, unless they were loaded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lapis.errors import LapisError


class Calibrated(nn.Module):
    """A module that knows whether its steps or time constants have been found, and saves that in its file."""

    ready: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ready", torch.zeros((), dtype=torch.bool))
        # The same fact for Python, so that a forward pass never waits for a tensor and compilers see a constant.
        self.is_ready = False

    def mark_ready(self, ready: bool = True) -> None:
        self.ready.fill_(ready)
        self.is_ready = ready

    def check_ready(self) -> None:
        """Refuse to compute before the steps or time constants have been found."""
        if not self.is_ready:
            raise LapisError(
                f"{type(self).__name__} has no parameters yet; call lapis.nn.calibrate(model, images) before the "
                "network is used, or load a trained network"
            )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self.is_ready = bool(self.ready)
