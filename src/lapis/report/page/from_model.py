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
from lapis.report.page.evidence import Progress, by_occlusion
from lapis.report.page.explained import Explained, ReadoutScale, Recorded, check_explainable
from lapis.trace import Trace


def explain_model(
    network: LapisViT,
    image: np.ndarray,
    preprocess: Preprocess,
    class_names: tuple[str, ...] = (),
    evidence: bool = True,
    progress: Progress | None = None,
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
    leaks = rule_of(network.config.relation).stored == "leak"
    return Explained(
        config=network.config,
        image=image,
        class_names=class_names,
        logits=answer,
        trace=trace,
        tau=np.stack([_numpy(with_tau(block.attn.relation).tau) for block in network.blocks]) if leaks else None,
        delays=_delays(network) if leaks else None,
        recorded=None if leaks else tuple(recorded(block.attn, trace) for block in network.blocks),
        readout=_readout(network),
        evidence=by_occlusion(run, image, answer, network.config.patch_size, progress) if evidence else None,
        executor="PyTorch, the quantized network in FP32",
        **details,
    )


@torch.no_grad()
def recorded(attention: Attention, trace: Trace) -> Recorded:
    """What the rule of a block made of the codes of one image: its weights, or what it let pass."""
    q, k, v = (by_head(trace[attention.index, point], attention.heads) for point in ("q", "k", "v"))
    (q, k), v = attention.taken(torch.stack([q, k]), v)
    relation = attention.relation
    if isinstance(relation, Pairwise):
        return Recorded(weights=_numpy(relation.weights(q, k)[0]))
    gates = relation.gates(q, k, v)
    return Recorded() if gates is None else Recorded(gates=_numpy(gates[0]) > 0)


def _delays(model: LapisViT) -> np.ndarray | None:
    """round(tau_h (b_max - b)) (L, E, H)."""
    relations = [with_tau(block.attn.relation) for block in model.blocks]
    tables = [_numpy(each.position.steps(each.tau)) for each in relations if each.position is not None]
    return np.stack(tables).astype(np.int64) if tables else None


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
