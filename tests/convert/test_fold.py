"""Conversion keeps the trained network's meaning, stage by stage."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F

from lapis.config import Coding, CodingByPoint, LapisConfig
from lapis.convert.executors import stagewise_executor
from lapis.convert.fold import from_model
from lapis.convert.verification import verify
from lapis.deploy import integer
from lapis.deploy.arithmetic import Int32
from lapis.deploy.network import Layer
from lapis.errors import LapisError
from lapis.nn import LapisViT
from lapis.nn.attention import Attention
from lapis.nn.pixels import normalise
from lapis.nn.quantizer import ActivationQuantizer, Linear, required
from lapis.nn.relations import with_tau
from lapis.ops.attention.reference import weights as attention_weights
from lapis.preprocess import Preprocess
from lapis.trace import Point, Trace
from tests.networks import small_config, small_model

# Deployed constants are float32 and affinities have 15 bits: codes this close to a rounding tie may go either way.
TIE = 2e-3
BASE = small_config(image_size=12, classes=4, width=24, heads=3)
CASES = [
    BASE.replace(style=style, weight_bits=bits, coding=CodingByPoint.all(mode))
    for style, bits, mode in cast(
        "list[tuple[str, int, Coding]]",
        [
            ("vit", 6, "unsigned"),
            ("vit", 6, "offset"),
            ("vit", 6, "signed"),
            ("beit", 6, "unsigned"),
            ("beit", 4, "offset"),
        ],
    )
]


def _value(point: ActivationQuantizer | None, codes: npt.NDArray[Any]) -> torch.Tensor:
    """What codes stand for, in float64."""
    quantizer = required(point)
    real = torch.from_numpy(codes).double() * quantizer.step.double()
    return real if quantizer.offset is None else real + quantizer.offset.double()


def _assert_codes(
    point: ActivationQuantizer | None, real: torch.Tensor, codes: npt.NDArray[Any], where: object
) -> None:
    quantizer = required(point)
    offset = 0.0 if quantizer.offset is None else quantizer.offset.double()
    u = ((real - offset) / quantizer.step.double() + 0.5).detach().numpy()
    expected = np.clip(np.floor(u), quantizer.low, quantizer.high)
    wrong = (expected != codes) & (np.abs(u - np.round(u)) > TIE)
    assert not wrong.any(), where
    assert (expected == codes).mean() > 0.99, where


@pytest.mark.parametrize("config", CASES, ids=lambda c: f"{c.style}-{c.weight_bits}-{c.coding.qk}")
@torch.no_grad()
def test_every_stage_codes_what_the_trained_stage_means(config: LapisConfig) -> None:
    model, images = small_model(config, 5)
    network = from_model(model, fraction_bits=16)
    trace = integer.watch(network, images).trace
    model = model.double()
    stream = integer.embed(network, images)
    pixels = normalise(torch.from_numpy(images), network.preprocess).double()
    embedded = torch.cat([model.cls_token.expand(len(images), -1, -1), model.patch_embed(pixels)], dim=1)
    if model.pos_embed is not None:
        embedded = embedded + model.pos_embed
    unit = 2.0**network.fraction_bits
    assert np.abs(stream / unit - embedded.numpy()).max() < 1e-3 * embedded.abs().max()
    for index, block in enumerate(model.blocks):
        attn, mlp = block.attn, block.mlp
        _assert_codes(attn.input, block.norm1(torch.from_numpy(stream / unit)), trace[index, "attention_in"], index)
        q, k, v = _plain(attn.qkv, _value(attn.input, trace[index, "attention_in"])).chunk(3, dim=-1)
        _assert_codes(attn.qk, q, trace[index, "q"], (index, "q"))
        _assert_codes(attn.qk, k, trace[index, "k"], (index, "k"))
        _assert_codes(attn.v, v, trace[index, "v"], (index, "v"))
        _assert_codes(attn.readout, _mixed(attn, trace, index), trace[index, "readout"], (index, "readout"))
        added = _plain(attn.proj, _value(attn.readout, trace[index, "readout"]))
        stream = _moved(stream, added, block.gamma_1, network.blocks[index].proj, trace[index, "readout"], unit)
        _assert_codes(mlp.input, block.norm2(torch.from_numpy(stream / unit)), trace[index, "mlp_in"], index)
        hidden = F.gelu(_plain(mlp.fc1, _value(mlp.input, trace[index, "mlp_in"])))
        _assert_codes(mlp.hidden, hidden, trace[index, "mlp_hidden"], (index, "mlp_hidden"))
        added = _plain(mlp.fc2, _value(mlp.hidden, trace[index, "mlp_hidden"]))
        stream = _moved(stream, added, block.gamma_2, network.blocks[index].fc2, trace[index, "mlp_hidden"], unit)
    logits = model.head(model.pool(torch.from_numpy(stream / unit))).numpy()
    assert np.abs(logits - network.real_logits(integer.run(network, images))).max() < 5e-3 * np.abs(logits).max()


def _plain(layer: Linear, x: torch.Tensor) -> torch.Tensor:
    """The layer in float64; the quantizer's own path is float32."""
    weight = layer.weight if layer.quantizer is None else layer.quantizer.codes(layer.weight) * layer.quantizer.step
    return F.linear(x, weight.double(), layer.bias.double())


def _mixed(attn: Attention, trace: Trace, index: int) -> torch.Tensor:
    def heads(point: Point) -> npt.NDArray[np.int64]:
        codes = trace[index, point].astype(np.int64)
        split: npt.NDArray[np.int64] = codes.reshape(*codes.shape[:2], attn.heads, -1).transpose(0, 2, 1, 3)
        return split

    relation = with_tau(attn.relation)
    tau = relation.tau.numpy()
    delay = None
    if relation.position is not None:
        delay = np.rint(relation.position.float().delay(relation.tau.float()).numpy()).astype(np.int64)
    low = required(attn.qk).low
    w = attention_weights(heads("q") - low, heads("k") - low, tau, "pow2", delay)
    y = (w @ heads("v")).transpose(0, 2, 1, 3).reshape(trace[index, "v"].shape)
    return _value(attn.v, y)


def _moved(
    stream: Int32, added: torch.Tensor, gamma: torch.Tensor | None, layer: Layer, codes: npt.NDArray[Any], unit: float
) -> Int32:
    """The stream after a sublayer, and that the deployed change is the trained one to the last bit but one."""
    exact = (added if gamma is None else added * gamma).numpy()
    delta = np.floor(layer.pre(codes)).astype(np.int64)
    # Half a unit of rounding, and float32's 24 bits of what is rounded.
    assert np.abs(delta - exact * unit).max() <= 0.5 + 2.0**-21 * np.abs(exact * unit).max() + 1e-3
    return (stream + delta).astype(np.int32)


@pytest.mark.parametrize("config", CASES[:5], ids=lambda c: f"{c.style}-{c.weight_bits}-{c.coding.qk}")
def test_the_trained_network_codes_its_first_window_alike(config: LapisConfig) -> None:
    model, images = small_model(config, 7)
    network = from_model(model)
    pixels = normalise(torch.from_numpy(images), network.preprocess)
    trained, deployed = model.watch(pixels).trace, integer.watch(network, images).trace
    assert (trained[0, "attention_in"] == deployed[0, "attention_in"]).mean() > 0.99
    assert np.abs(trained[0, "attention_in"] - deployed[0, "attention_in"]).max() <= 1


def test_stages_apply_the_activation_of_the_network() -> None:
    model, images = small_model(BASE.replace(activation="relu"), 9)
    network = from_model(model)
    assert verify(network, {"stages": stagewise_executor(model, network)}, [(images, None)]).passed


@pytest.mark.parametrize("bits", [15, 8, 5, 1])
@pytest.mark.parametrize("relation", ["laplacian", "reciprocal"])
def test_training_sees_affinities_as_narrow_as_they_are_deployed(relation: str, bits: int) -> None:
    model, images = small_model(BASE.replace(relation=relation, affinity_bits=bits), 9)
    network = from_model(model)
    report = verify(network, {"stages": stagewise_executor(model, network)}, [(images, None)])
    assert report.passed, report.agreements[0].first
    # The comparison can fail: stages of another width do not agree.
    other = from_model(small_model(BASE.replace(relation=relation, affinity_bits=3), 9)[0])
    assert not verify(other, {"stages": stagewise_executor(model, other)}, [(images, None)]).passed


@pytest.mark.parametrize(
    ("change", "word"),
    [({"row_scale": "exact"}, "row_scale"), ({"readout": "real"}, "readout"), ({"relation": "gaussian"}, "relation")],
)
def test_a_network_without_a_spiking_form_is_refused(change: dict[str, Any], word: str) -> None:
    model, _ = small_model(BASE.replace(**change))
    with pytest.raises(LapisError, match=word):
        from_model(model)


def test_a_network_that_was_never_calibrated_is_refused() -> None:
    with pytest.raises(LapisError, match="calibrate"):
        from_model(LapisViT(BASE))


def test_preprocessing_must_make_what_the_network_takes() -> None:
    with pytest.raises(LapisError, match="preprocessing makes 16 pixels"):
        from_model(small_model(BASE)[0], Preprocess(16))


def test_other_preprocessing_is_folded_into_the_patches() -> None:
    model, images = small_model(BASE, 2)
    preprocess = Preprocess(12, mean=(0.1, 0.5, 0.9), std=(0.2, 0.5, 1.0))
    network = from_model(model, preprocess, fraction_bits=18)
    pixels = normalise(torch.from_numpy(images), preprocess)
    assert model.pos_embed is not None
    real = model.patch_embed(pixels) + model.pos_embed[:, 1:]
    stream = integer.embed(network, images)[:, 1:] / 2.0**18
    assert np.abs(stream - real.detach().numpy()).max() < 1e-3 * float(real.detach().abs().max())
