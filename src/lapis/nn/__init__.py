"""Networks to train: torch modules built from a `LapisConfig`."""

from lapis.nn.calibrate import calibrate, is_calibrated
from lapis.nn.checkpoint import load_network, save_network
from lapis.nn.lift import fold_offsets, lift
from lapis.nn.model import LapisViT, Tapped, Watched
from lapis.nn.pretrained import load_backbone

__all__ = [
    "LapisViT",
    "Tapped",
    "Watched",
    "calibrate",
    "fold_offsets",
    "is_calibrated",
    "lift",
    "load_backbone",
    "load_network",
    "save_network",
]
