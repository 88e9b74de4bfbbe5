"""The data of the page for a network in torch, as it runs in training."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lapis.convert.executors import by_head
from lapis.errors import LapisError
from lapis.nn import LapisViT, is_calibrated
from lapis.nn.attention import Attention
from lapis.nn.pixels import normalise
from lapis.nn.quantizer import ActivationQuantizer, required
from lapis.nn.relations import Pairwise, with_tau
from lapis.preprocess import Pixels, Preprocess
from lapis.relations import rule_of
from lapis.report.page.evidence import by_occlusion
from lapis.report.page.explain import AttentionSource, Explained, ReadoutScale, check_explainable
from lapis.trace import Trace


def explain_model(
    network: LapisViT,
    image: np.ndarray,
    preprocess: Preprocess,
    class_names: tuple[str, ...] = (),
    evidence: bool = True,
    **details: Any,
) -> Explained:
    """Run `network` on one image (S, S, 3) of bytes and record all codes; `evidence` is by occlusion."""
    check_explainable(network.config)
    if not is_calibrated(network):
        raise LapisError("the network has no steps yet; calibrate it on a few images, or train it, first")
    network.eval()

    def prepared(images: Pixels) -> Tensor:
        return normalise(torch.from_numpy(images.copy()), preprocess)

    def run(images: Pixels) -> np.ndarray:
        with torch.inference_mode():
            return _numpy(network(prepared(images)))

    logits, trace = network.watch(prepared(image[None]))
    answer = logits[0].double().cpu().numpy()
    found = by_occlusion(run, image, answer, network.config.patch_size) if evidence else None
    details = {"executor": "PyTorch, the quantized network in FP32"} | details
    return Explained(
        network.config, image, class_names, answer, trace, _attention_source(network, trace), found, **details
    )


@torch.no_grad()
def _attention_source(network: LapisViT, trace: Trace) -> AttentionSource:
    """Time constants and delays of a rule that leaks; of another, the weights that it gave in this run."""
    readout = _readout(network)
    rule = rule_of(network.config.relation)
    if rule.stored != "leak" or rule.compared_by == "dot":
        return AttentionSource(recorded=tuple(_weights(block.attn, trace) for block in network.blocks), readout=readout)
    relations = [with_tau(block.attn.relation) for block in network.blocks]
    # round(tau_h (b_max - b)) (L, E, H).
    steps = [_numpy(each.position.steps(each.tau)) for each in relations if each.position is not None]
    delays = np.stack(steps).astype(np.int64) if steps else None
    return AttentionSource(np.stack([_numpy(each.tau) for each in relations]), delays, readout=readout)


def _weights(attention: Attention, trace: Trace) -> np.ndarray | None:
    """W (H, N, N) of a block on one image; None where its rule gives pairs none."""
    if not isinstance(attention.relation, Pairwise):
        return None
    q, k, v = (by_head(trace[attention.index, point], attention.heads) for point in ("q", "k", "v"))
    (q, k), _ = attention.taken(torch.stack([q, k]), v)
    return _numpy(attention.relation.weights(q, k)[0])


def _readout(model: LapisViT) -> ReadoutScale | None:
    if model.config.readout != "spikes":
        return None
    scales, shifts = [], []
    for block in model.blocks:
        v, readout = required(block.attn.v), required(block.attn.readout)
        step = float(readout.step.detach())
        unit, offset = (1.0, 0.0) if block.attn.relation.values_on_codes else (float(v.step.detach()), _offset(v))
        scales.append(unit / step)
        shifts.append((offset - _offset(readout)) / step + 0.5)
    return ReadoutScale(np.array(scales), np.array(shifts))


def _offset(quantizer: ActivationQuantizer) -> float:
    return 0.0 if quantizer.offset is None else float(quantizer.offset.detach())


def _numpy(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().cpu().numpy().astype(np.float64)
    return array
