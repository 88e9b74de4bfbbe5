"""LapisViT: a vision transformer in which each activation between layers is at most one spike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from lapis.config import NORM_EPS, LapisConfig, LeastCodes
from lapis.errors import LapisError
from lapis.nn.block import Block
from lapis.nn.quantizer import ActivationQuantizer
from lapis.trace import Trace, Watched


class Tapped(NamedTuple):
    """Logits, and the tokens after each tapped block."""

    logits: Tensor
    features: list[Tensor]


class PatchEmbed(nn.Module):
    """Non-overlapping patches to tokens, a strided convolution in FP32."""

    def __init__(self, config: LapisConfig) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, config.width, config.patch_size, config.patch_size)

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, S, S) -> (B, grid**2, D)."""
        patches: Tensor = self.proj(images)
        return patches.flatten(2).transpose(1, 2)


class LapisViT(nn.Module):
    """images (B, 3, S, S)  ->  logits (B, classes).

    `forward` classifies; `watch` also returns the trace of all measuring points; `tap` also returns the tokens after
    chosen blocks, for distillation.
    """

    def __init__(self, config: LapisConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbed(config)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.width))
        # BEiT's position signal is relative and lives in its attention.
        self.pos_embed = None if config.relative_position else nn.Parameter(torch.zeros(1, config.tokens, config.width))
        # A ModuleList makes the blocks known to torch, but its type forgets what it holds.
        listed = nn.ModuleList(Block(config, index) for index in range(config.depth))
        self.blocks = cast(Sequence[Block], listed)
        self.norm = nn.LayerNorm(config.width, eps=NORM_EPS)
        self.head = nn.Linear(config.width, config.classes)
        self._initialise()

    def forward(self, images: Tensor) -> Tensor:
        return self._run(images, None, ()).logits

    def quantizers(self) -> Iterator[tuple[int, str, ActivationQuantizer]]:
        """(block, measuring point, quantizer) of all that spike; q and k share the one called qk."""
        for index, block in enumerate(self.blocks):
            named = {
                "attention_in": block.attn.input, "qk": block.attn.qk, "v": block.attn.v,
                "readout": block.attn.readout, "mlp_in": block.mlp.input, "mlp_hidden": block.mlp.hidden,
            }  # fmt: skip
            for point, quantizer in named.items():
                if quantizer is not None:
                    yield index, point, quantizer

    def set_least_codes(self, least_codes: LeastCodes) -> None:
        """Change the least code that fires at every point; the configuration changes with it."""
        self.config = self.config.replace(least_codes=least_codes)
        for block, point, quantizer in self.quantizers():
            quantizer.least = self.config.least(point, block)

    def set_top_k(self, share: float) -> None:
        """Change the share of each token's neurons that may fire; the configuration changes with it."""
        self.config = self.config.replace(top_k=share)
        for _, point, quantizer in self.quantizers():
            quantizer.kept_share = self.config.kept_share(point)

    @torch.no_grad()
    def watch(self, images: Tensor) -> Watched:
        """Logits and the integer codes at every measuring point, in FP32 and without gradients."""
        trace = Trace(self.config.window)
        with torch.autocast(images.device.type, enabled=False):
            return Watched(self._run(images.float(), trace, ()).logits, trace)

    def tap(self, images: Tensor, blocks: Sequence[int]) -> Tapped:
        """Logits and the tokens (B, N, D) after each of `blocks`, in the order given."""
        unknown = [block for block in blocks if not 0 <= block < self.config.depth]
        if unknown:
            raise LapisError(f"block {unknown[0]} does not exist; this network has blocks 0..{self.config.depth - 1}")
        return self._run(images, None, blocks)

    def _run(self, images: Tensor, trace: Trace | None, taps: Sequence[int]) -> Tapped:
        self._check(images)
        x = torch.cat([self.cls_token.expand(images.shape[0], -1, -1), self.patch_embed(images)], dim=1)
        if self.pos_embed is not None:
            x = x + self.pos_embed
        features: dict[int, Tensor] = {}
        for index, block in enumerate(self.blocks):
            x = block(x, trace)
            if index in taps:
                features[index] = x
        return Tapped(self.head(self.pool(x)), [features[index] for index in taps])

    def pool(self, x: Tensor) -> Tensor:
        """BEiT: the mean of the patch tokens, then the norm. DeiT and ViT: the norm's class token."""
        pooled: Tensor = self.norm(x[:, 1:].mean(dim=1)) if self.config.mean_pooling else self.norm(x[:, 0])
        return pooled

    def _check(self, images: Tensor) -> None:
        size = self.config.image_size
        if images.ndim != 4 or tuple(images.shape[1:]) != (3, size, size):
            raise LapisError(
                f"images of shape {tuple(images.shape)} were given; this network takes (batch, 3, {size}, {size})"
            )

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        if self.pos_embed is not None:
            nn.init.trunc_normal_(self.pos_embed, std=0.02)
