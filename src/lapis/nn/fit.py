"""Fit a spiking network to the dense one whose weights it has, layer by layer, in closed form and without training.

Spikes round, silence and mix values otherwise than the dense network does, and every layer passes that on. Here each
linear layer in turn gets the weights and biases for which its output, from what it now receives, is nearest to the
dense one's: ridge regression on a few hundred images. A layer that writes to the residual stream also makes up for what
the stream has lost before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from lapis.nn.block import TransformerBlock
from lapis.nn.calibrate import calibrate
from lapis.nn.model import LapisViT
from lapis.nn.quantizer import Linear

# Weights stay near those of the dense network as if so many rows per input had said that nothing lacks.
ROWS = 3
BATCH = 64
# Keeps the equations solvable where no input spikes.
SMALLEST = 1e-9


@torch.no_grad()
def fit_layers(model: LapisViT, images: Tensor) -> None:
    """Fit all blocks of `model`, which has the weights of a dense network, to that network on images (B, 3, S, S).

    Steps and taus are calibrated on the way, each on what the fitted layers before it give.
    """
    dense = LapisViT(model.config.dense()).to(images.device)
    own = model.state_dict()
    dense.load_state_dict({name: own[name] for name in dense.state_dict()})
    ours = theirs = torch.cat([dense.eval().embed(part) for part in images.split(BATCH)])
    training = model.training
    for block, source in zip(model.eval().blocks, dense.blocks, strict=True):
        calibrate(block, [ours[:BATCH]])
        attention, mlp = block.attn, block.mlp
        for layer, twin, read, gain in (
            (attention.qkv, source.attn.qkv, None, None),
            (attention.proj, source.attn.proj, "norm1", block.gamma_1),
            (mlp.fc1, source.mlp.fc1, None, None),
            (mlp.fc2, source.mlp.fc2, "norm2", block.gamma_2),
        ):
            _fit(layer, _pairs(block, source, layer, twin, read, gain, ours, theirs))
        ours = torch.cat([block(part) for part in ours.split(BATCH)])
        theirs = torch.cat([source(part) for part in theirs.split(BATCH)])
    model.train(training)


def _fit(layer: Linear, pairs: Iterator[tuple[Tensor, Tensor]]) -> None:
    """Add to the layer what best turns its inputs x (n, D) into the errors e (n, O) that it makes: e = x V + c."""
    width = layer.in_features + 1  # the last input is 1
    products = torch.zeros(width, width, dtype=torch.float64, device=layer.weight.device)
    errors = torch.zeros(width, layer.out_features, dtype=torch.float64, device=layer.weight.device)
    for x, error in pairs:
        one = torch.nn.functional.pad(x, (0, 1), value=1.0).double()
        products += one.T @ one
        errors += one.T @ error.double()
    rows = products[-1, -1]
    mean = products[-1] / rows
    # Without its mean, an input has no part in the constant, and the ridge does not pull at the bias.
    spread = (products - rows * torch.outer(mean, mean))[:-1, :-1]
    turned = (errors - torch.outer(mean, errors[-1]))[:-1]
    ridge = ROWS * spread.trace() / rows + SMALLEST
    change = torch.linalg.solve(spread + ridge * torch.eye(width - 1, dtype=rows.dtype, device=rows.device), turned)
    before = layer.weight if layer.quantizer is None else layer.quantizer(layer.weight)
    layer.weight.copy_(before + change.T)
    if layer.quantizer is not None:
        layer.quantizer.calibrate(layer.weight)
        change = (layer.quantizer(layer.weight) - before).double().T
    layer.bias.add_(errors[-1] / rows - mean[:-1] @ change)


def _pairs(
    block: TransformerBlock, source: TransformerBlock, layer: Linear, twin: Linear, read: str | None,
    gain: Tensor | None, ours: Tensor, theirs: Tensor,
) -> Iterator[tuple[Tensor, Tensor]]:  # fmt: skip
    """Batches of the layer's inputs (n, D) and of what its outputs lack (n, O).

    `read` names the norm that reads the residual stream to which the layer writes.
    """
    for x, y in zip(ours.split(BATCH), theirs.split(BATCH), strict=True):
        with _seen(block, layer, read) as here, _seen(source, twin, read) as there:
            block(x)
            source(y)
        lacks = there[1] - here[1]
        if read is not None:
            lost = there[2] - here[2]
            lacks = lacks + (lost if gain is None else lost / gain)
        yield here[0], lacks


@contextmanager
def _seen(block: TransformerBlock, layer: nn.Module, norm: str | None) -> Iterator[list[Tensor]]:
    """A list for the inputs and outputs of a layer and, behind them, what a norm of the block gets; rows (n, D)."""
    seen: list[Tensor] = [torch.empty(0)] * 3

    def note_layer(_: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        seen[0], seen[1] = inputs[0].flatten(0, -2), output.flatten(0, -2)

    def note_norm(_: nn.Module, inputs: tuple[Tensor]) -> None:
        seen[2] = inputs[0].flatten(0, -2)

    hooks = [layer.register_forward_hook(note_layer)]
    if norm is not None:
        hooks.append(block.get_submodule(norm).register_forward_pre_hook(note_norm))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
