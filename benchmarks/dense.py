"""The dense vision transformer that the other engines run: plain LayerNorm, softmax attention and GELU in torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lapis.config import NORM_EPS, LapisConfig
from lapis.errors import LapisError

# Two ways to compute the same floats.
LOGITS_RTOL, LOGITS_ATOL = 1e-3, 1e-3


class DenseBlock(nn.Module):
    """One block; its attention is torch's fused operator."""

    def __init__(self, config: LapisConfig) -> None:
        super().__init__()
        d = config.width
        self.heads = config.heads
        self.norm1, self.norm2 = nn.LayerNorm(d, NORM_EPS), nn.LayerNorm(d, NORM_EPS)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc1, self.fc2 = nn.Linear(d, config.hidden), nn.Linear(config.hidden, d)

    def forward(self, x: Tensor) -> Any:
        batch, tokens, d = x.shape
        # Exported, an array of five axes would be cut by two slices and a squeeze per part.
        q, k, v = (
            part.view(batch, tokens, self.heads, d // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, d)
        x = x + self.proj(mixed)
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x))))


class DenseTransformer(nn.Module):
    """The whole network: patches, class token, positions, blocks, head."""

    def __init__(self, config: LapisConfig) -> None:
        super().__init__()
        d = config.width
        self.patch = nn.Conv2d(3, d, config.patch_size, config.patch_size)
        self.token = nn.Parameter(torch.zeros(1, 1, d))
        self.position = nn.Parameter(0.02 * torch.randn(1, config.tokens, d))
        self.blocks = nn.Sequential(*(DenseBlock(config) for _ in range(config.depth)))
        self.norm, self.head = nn.LayerNorm(d, NORM_EPS), nn.Linear(d, config.classes)

    def forward(self, x: Tensor) -> Any:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


def dense(config: LapisConfig) -> DenseTransformer:
    """The dense network of this shape with random weights, the same at every call."""
    torch.manual_seed(0)
    return DenseTransformer(config).eval()


# The names of the same tensors in a LapisViT, which are timm's.
RENAMED = (
    ("patch_embed.proj", "patch"),
    ("cls_token", "token"),
    ("pos_embed", "position"),
    (".attn.", "."),
    (".mlp.", "."),
)


def from_vit(model: nn.Module, config: LapisConfig) -> DenseTransformer:
    """The dense network with the weights of a LapisViT; an error if that computes anything else."""
    tensors = {}
    for name, tensor in model.state_dict().items():
        for timms, ours in RENAMED:
            name = name.replace(timms, ours)
        tensors[name] = tensor
    made = dense(config)
    images = torch.randn(2, 3, config.image_size, config.image_size)
    try:
        made.load_state_dict(tensors)
        with torch.inference_mode():
            same = torch.allclose(made(images), model(images), rtol=LOGITS_RTOL, atol=LOGITS_ATOL)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise LapisError(f"the weights are not those of a plain dense ViT: {reason}") from error
    if not same:
        raise LapisError("the weights are not those of a plain dense ViT: other logits; use a ViT or DeiT of timm")
    return made
