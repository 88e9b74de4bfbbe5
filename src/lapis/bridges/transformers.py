"""Laplacian attention in Hugging Face transformers: ViT, DeiT, BEiT and DINOv2 with attn_implementation="lapis".

W_ij = softmax_j(m_ij - |q_i - k_j|_1 / tau_h), where m is a mask or BEiT's position bias. Importing this module makes
the name known to transformers. Each attention of such a model has its time constants, one per head, as
`relation.log_tau`: `calibrate` finds them from data, training changes them, `save_pretrained` and `from_pretrained`
keep them.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lapis.errors import LapisError
from lapis.nn.attention import softmax_attention
from lapis.nn.pretrained import import_beside_torchvision
from lapis.nn.relations.distance import first_tau, fit_heads
from lapis.ops.distance.eager import l1_distance
from lapis.ops.row_scale.eager import exact_rows, log_affinity

IMPLEMENTATION = "lapis"
# The folder of each family in transformers, and what the names of its classes begin with.
FAMILIES = {"vit": "ViT", "deit": "DeiT", "beit": "Beit", "dinov2": "Dinov2"}


class TimeConstants(nn.Module):
    """ln tau (H,) of one attention; NaN until it is found or loaded."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.log_tau = nn.Parameter(torch.full((heads,), torch.nan))
        # While `calibrate` runs: the next data decide.
        self.finding = False

    def forward(self, q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
        """W (B, H, N, N) of (B, H, N, C) twice."""
        log = log_affinity(l1_distance(q, k), self.log_tau.float().exp())
        return exact_rows(log if bias is None else log + bias)

    def find(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> None:
        """Choose the tau with which each head's readout is closest to that of softmax attention."""
        self.log_tau.copy_(first_tau(l1_distance(q, k)).log())
        fit_heads(self.log_tau, lambda: self(q, k, bias) @ v, softmax_attention(q, k, v, bias))
        self.finding = False


def lapis_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float = 0.0, **_: Any
) -> tuple[Tensor, Tensor]:
    """The readout (B, N, H, C) and the weights (B, H, N, N), as transformers asks for them.

    A mask is added to ln A, or tells with True what a token sees.
    """
    relation = getattr(module, "relation", None)
    if not isinstance(relation, TimeConstants):
        raise LapisError(
            f"{type(module).__name__} has no time constants; load {', '.join(FAMILIES.values())} with "
            f"attn_implementation={IMPLEMENTATION!r}, or call lapis.bridges.transformers.calibrate(model, batch)"
        )
    # Distance, exponential and row sums stay in float32.
    with torch.autocast(query.device.type, enabled=False):
        q, k, v = query.float(), key.float(), value.float()
        bias = mask
        if mask is not None:
            bias = torch.where(mask, 0.0, -torch.inf) if mask.dtype == torch.bool else mask.float()
        if relation.finding:
            relation.find(q, k, v, bias)
        if not torch.compiler.is_compiling() and bool(relation.log_tau.isnan().any()):
            raise LapisError("tau is not known yet; call lapis.bridges.transformers.calibrate(model, batch) first")
        weights = relation(q, k, bias)
        readout = F.dropout(weights, dropout, module.training) @ v
    return readout.transpose(1, 2).contiguous().to(query.dtype), weights


@torch.no_grad()
def calibrate(model: Any, batch: Tensor | Mapping[str, Tensor]) -> None:
    """Give every attention of the model the Laplacian relation, and find its tau from a batch of images.

    `batch`: pixel_values (B, 3, S, S), or what an image processor gives.
    """
    layers: list[Any] = [module for module in model.modules() if isinstance(module, ATTENTIONS)]
    if not layers:
        raise LapisError(f"{type(model).__name__} is none of {', '.join(FAMILIES.values())} of transformers")
    model.set_attn_implementation(IMPLEMENTATION)
    for layer in layers:
        if not hasattr(layer, "relation"):
            layer.relation = TimeConstants(layer.num_attention_heads).to(layer.q_proj.weight.device)
        layer.relation.finding = True
    training = model.training
    model.eval()
    try:
        model(**batch) if isinstance(batch, Mapping) else model(batch)
    finally:
        model.train(training)
        for layer in layers:
            layer.relation.finding = False


def _install(family: str, prefix: str) -> type[nn.Module]:
    """Let the attention of a family have time constants where a model asks for them; returns its class."""
    modeling = import_beside_torchvision(f"transformers.models.{family}.modeling_{family}")
    attention, model = getattr(modeling, f"{prefix}Attention"), getattr(modeling, f"{prefix}PreTrainedModel")
    build, init_weights = attention.__init__, model._init_weights

    @functools.wraps(build)
    def init(self: Any, config: Any, *rest: Any, **options: Any) -> None:
        build(self, config, *rest, **options)
        if config._attn_implementation == IMPLEMENTATION:
            self.relation = TimeConstants(config.num_attention_heads)

    @functools.wraps(init_weights)
    def init_weights_too(self: Any, module: nn.Module) -> None:
        init_weights(self, module)
        # This function of transformers leaves alone what came from a file.
        if isinstance(module, TimeConstants):
            modeling.init.constant_(module.log_tau, torch.nan)

    attention.__init__, model._init_weights = init, init_weights_too
    return cast(type[nn.Module], attention)


try:
    ATTENTIONS = tuple(_install(family, prefix) for family, prefix in FAMILIES.items())
except (ImportError, AttributeError) as error:
    raise LapisError(f"this bridge needs transformers 5.23 or later: pip install transformers ({error})") from error
_modeling = import_beside_torchvision("transformers.modeling_utils")
_masking = import_beside_torchvision("transformers.masking_utils")
_modeling.AttentionInterface.register(IMPLEMENTATION, lapis_attention)
# Without it transformers would leave out a mask that a user passes.
_masking.AttentionMaskInterface.register(IMPLEMENTATION, _masking.eager_mask)
# transformers opens the folder of `lapis publish` by timm, where that is installed.
if importlib.util.find_spec("timm") is not None:
    import_beside_torchvision("lapis.nn.timm_models")
