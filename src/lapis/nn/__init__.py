"""Networks for training: torch modules built from a `LapisConfig`."""

from lapis.nn.attention import LapisAttention, replace_attention
from lapis.nn.calibrate import calibrate, is_calibrated
from lapis.nn.checkpoint import save_network
from lapis.nn.model import LapisViT, load_network
from lapis.nn.pretrained import import_timm, load_backbone
from lapis.nn.quantizer import ActivationQuantizer, Calibrated
from lapis.nn.relations import (
    DistanceRelation,
    DotProduct,
    Mixer,
    Pairwise,
    Relation,
    TableRelation,
    register_relation,
)

__all__ = [
    "ActivationQuantizer",
    "Calibrated",
    "DistanceRelation",
    "DotProduct",
    "LapisAttention",
    "LapisViT",
    "Mixer",
    "Pairwise",
    "Relation",
    "TableRelation",
    "calibrate",
    "import_timm",
    "is_calibrated",
    "load_backbone",
    "load_network",
    "register_relation",
    "replace_attention",
    "save_network",
]
