"""Where the Gaussian relation stands beside the others, and why: `python research/gaussian_scale.py --data DIR`.

Before any training: how far the attention of each rule is from the softmax attention for
which imported weights were trained (KL divergence of rows, in nats), how many keys a row attends to (exp of its
entropy), and the accuracy. The last row is a Gaussian whose first time constants are found from l1 distances, as one
would set them "under an otherwise identical configuration" (docs/results.md).
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from lapis.data.cifar import Split
from lapis.data.images import spread
from lapis.data.open import open_images, resized_batches
from lapis.nn import LapisViT, register_relation
from lapis.nn.attention import Attention, softmax_attention
from lapis.nn.pixels import normalise
from lapis.nn.relations.base import Relation
from lapis.nn.relations.distance import Gaussian, first_tau
from lapis.ops.distance.eager import l1_distance
from lapis.preprocess import Preprocess
from lapis.train import recipes
from lapis.train.recipe import Recipe
from lapis.train.start import start_network

RULES = ("dot", "laplacian", "gaussian", "hamming", "eco")
SHARP = "gaussian_l1_tau"
CALIBRATION, BATCH = 64, 100


class SharpGaussian(Gaussian):
    """The Gaussian whose first tau_h are those of the Laplacian: too small for squared distances."""

    @torch.no_grad()
    def init_from_data(self, q: Tensor, k: Tensor, v: Tensor, readout: Tensor) -> None:
        self.log_tau.copy_(first_tau(l1_distance(q, k)).log())
        self.mark_ready()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of CIFAR-10")
    parser.add_argument("--start", default="runs/cifar10_tiny_teacher", help="dense weights, start and teacher of all")
    parser.add_argument("--size", type=int, default=96, help="image size of start and teacher")
    parser.add_argument("--count", type=int, default=1000, help="test images before training")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="a setting of the recipe")
    asked = parser.parse_args()
    register_relation(SHARP, SharpGaussian)
    common = [f"start={asked.start}", f"distill.teacher={asked.start}", f"model.image_size={asked.size}"]
    recipe = recipes.load("cifar10_tiny").with_overrides([*common, *asked.settings])
    print(f"{'relation':<16} {'KL from softmax':>15} {'keys per row':>13} {'top-1 %':>8}")
    for name in (*RULES, SHARP):
        print(f"{name:<16} {_before_training(_with_relation(recipe, name), asked.data, asked.count)}", flush=True)


def _with_relation(recipe: Recipe, relation: str) -> Recipe:
    return replace(recipe, model=recipe.model.replace(relation=relation, mean_pool=True))


@torch.no_grad()
def _before_training(recipe: Recipe, data: Path, count: int) -> str:
    model = start_network(recipe.model, recipe.start, recipe.seed).eval()
    images = _images(data, "train", CALIBRATION, recipe.preprocess)[0]
    model(images)  # finds steps and time constants
    rows: list[tuple[float, float]] = []
    handles = [
        block.attn.qkv.register_forward_hook(lambda _, __, out, block=block: rows.append(_rows(block.attn, out)))
        for block in model.blocks
    ]
    model(images)
    for handle in handles:
        handle.remove()
    kl, keys = (sum(values) / len(rows) for values in zip(*rows, strict=True))
    return f"{kl:>15.3f} {keys:>13.1f} {_top1(model, recipe.preprocess, data, count):>8.2f}"


def _rows(attention: Attention, out: Tensor) -> tuple[float, float]:
    """The mean over rows of KL(softmax || ours), and of exp(entropy of ours), for one block's queries and keys."""
    relation = attention.relation
    assert isinstance(relation, Relation)
    qkv = attention.split_heads(out)
    identity = torch.eye(qkv.shape[-2]).expand(*qkv.shape[1:3], -1, -1)
    softmax = softmax_attention(qkv[0], qkv[1], identity).double().clamp_min(1e-12)
    qk, _ = attention.code(qkv)
    ours = relation.weights(qk[0], qk[1]).double().clamp_min(1e-12)
    kl = (softmax * (softmax.log() - ours.log())).sum(-1).mean()
    keys = (-(ours * ours.log()).sum(-1)).exp().mean()
    return float(kl), float(keys)


@torch.no_grad()
def _top1(model: LapisViT, preprocess: Preprocess, data: Path, count: int) -> float:
    images, labels = _images(data, "test", count, preprocess)
    right = sum(
        int((model(x).argmax(1) == y).sum()) for x, y in zip(images.split(BATCH), labels.split(BATCH), strict=True)
    )
    return 100 * right / count


def _images(data: Path, split: Split, count: int, preprocess: Preprocess) -> tuple[Tensor, Tensor]:
    batches = list(resized_batches(spread(open_images(data, split), count), preprocess, BATCH))
    pixels = torch.cat([torch.from_numpy(pixels) for pixels, _ in batches])
    return normalise(pixels, preprocess), torch.cat([torch.as_tensor(labels) for _, labels in batches])


if __name__ == "__main__":
    main()
