"""LapisViT: every configuration trains, watches and survives a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lapis.config import AFFINITY_BITS, Coding, CodingByPoint, LapisConfig, RowScale
from lapis.deploy.network import check_deployable
from lapis.errors import LapisError
from lapis.nn import LapisViT, calibrate, is_calibrated, load_network, save_network
from lapis.nn.attention import softmax_attention
from lapis.nn.quantizer import ActivationQuantizer, WeightQuantizer, required
from lapis.nn.relations import make_relation, with_tau
from lapis.nn.relations.distance import first_tau
from lapis.ops.attention.reference import attention as reference_attention
from lapis.trace import POINTS, Tally
from tests.networks import small_config

SMALL = LapisConfig(image_size=32, patch_size=8, width=24, depth=2, heads=3, classes=5, window=15)


def _images(seed: int = 0, count: int = 6, size: int = 32) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


def _network(seed: int = 0, **changes: Any) -> LapisViT:
    torch.manual_seed(seed)
    model = LapisViT(SMALL.replace(**changes))
    for name, parameter in model.named_parameters():
        if name.endswith("weight") and parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
        if name.endswith("position.table"):
            torch.nn.init.normal_(parameter)
    calibrate(model, _images(size=model.config.image_size))
    return model


@pytest.mark.parametrize("style", ["vit", "beit"])
@pytest.mark.parametrize("relation", ["laplacian", "dot", "gaussian", "hamming"])
@pytest.mark.parametrize("deployed", [False, True])
def test_every_relation_and_style_trains(style: str, relation: str, deployed: bool) -> None:
    stage: dict[str, Any] = {"row_scale": "pow2", "readout": "spikes", "weight_bits": 6} if deployed else {}
    model = _network(style=style, relation=relation, coding=CodingByPoint.all("signed"), **stage)
    images, labels = _images(), torch.arange(6) % 5
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(25):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("mode", ["unsigned", "offset", "signed"])
def test_every_parameter_of_a_deployable_network_learns(mode: Coding) -> None:
    model = _network(style="beit", row_scale="pow2", readout="spikes", weight_bits=6, coding=CodingByPoint.all(mode))
    model(_images()).square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert [name for name, gradient in gradients.items() if gradient is None] == []
    assert [name for name, gradient in gradients.items() if gradient is not None and not gradient.any()] == []


@pytest.mark.parametrize("mode", ["unsigned", "offset", "signed"])
def test_a_watched_forward_shows_codes_in_range_at_every_point(mode: Coding) -> None:
    model = _network(readout="spikes", coding=CodingByPoint.all(mode))
    images = _images()
    calibrate(model, [images])
    logits, trace = model.watch(images)
    assert set(trace) == {(block, point) for block in range(2) for point in POINTS}
    low = -15 if mode == "signed" else 0
    for block, point in trace:
        codes = trace[block, point]
        width = 96 if point == "mlp_hidden" else 24
        assert codes.shape == (6, 17, width)
        assert codes.dtype == np.int8
        assert codes.min() >= low
        assert codes.max() <= 15
    torch.testing.assert_close(logits, model.eval()(images), rtol=0, atol=0)
    tally = Tally()
    tally.add(trace)
    assert 0 < tally.activity("q") <= 1
    assert tally.images == 6


def test_without_a_spiking_readout_there_is_no_readout_point() -> None:
    model = _network(readout="real")
    assert {point for _, point in model.watch(_images()).trace} == set(POINTS) - {"readout"}


@pytest.mark.parametrize("row_scale", ["exact", "pow2"])
@pytest.mark.parametrize("style", ["vit", "beit"])
def test_the_network_attends_as_the_operator_says(row_scale: RowScale, style: str) -> None:
    model = _network(style=style, row_scale=row_scale, readout="real", affinity_bits=AFFINITY_BITS)
    model = model.eval().requires_grad_(False)
    images = _images()
    calibrate(model, [images])
    attention = model.blocks[0].attn
    trace = model.watch(images).trace
    q, k, v = (trace[0, point].astype(np.int64).reshape(6, 17, 3, 8).transpose(0, 2, 1, 3) for point in ("q", "k", "v"))
    relation, v_step = with_tau(attention.relation), required(attention.v).step
    delay = None if relation.position is None else relation.position.delay(relation.tau).numpy()
    whole = None if delay is None else delay.astype(np.int64)
    tau = relation.tau.double().numpy()
    expected = reference_attention(q, k, v, tau, row_scale, whole) * float(v_step)
    qk = torch.stack([torch.from_numpy(z).float() for z in (q, k)])
    mixed = attention.mix(qk, torch.from_numpy(v).float() * v_step)
    np.testing.assert_allclose(mixed.numpy(), expected, rtol=2e-5, atol=1e-5)
    if delay is not None:
        assert (delay == whole).all()
        assert whole is not None
        assert whole.min() >= 0
        assert whole.max() > 0


def test_an_offset_of_the_values_is_not_scaled_by_the_row_mass() -> None:
    model = _network(row_scale="pow2", coding=CodingByPoint(v="offset")).requires_grad_(False)
    calibrate(model, [_images()])
    attention = model.blocks[0].attn
    quantizer = required(attention.v)
    assert quantizer.offset is not None
    assert float(quantizer.offset) != 0
    qk = torch.zeros(2, 1, 3, 5, 8)  # five equal keys: the row mass is 5/4, not 1
    v = quantizer(torch.full((1, 3, 5, 8), float(quantizer.offset)))
    torch.testing.assert_close(attention.mix(qk, v), v)


def test_under_autocast_the_relation_stays_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _network(row_scale="pow2")
    images = _images()
    calibrate(model, [images])
    attention = model.blocks[0].attn
    seen: dict[str, torch.dtype] = {}
    mix, relate = attention.relation.mix, attention.relation.forward

    def watch_mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mixed = mix(q, k, v)
        seen.update(q=q.dtype, k=k.dtype, v=v.dtype, mixed=mixed.dtype)
        return mixed

    def watch_relation(q: Tensor, k: Tensor) -> Tensor:
        log_a: Tensor = relate(q, k)
        seen["log affinity"] = log_a.dtype
        return log_a

    monkeypatch.setattr(attention.relation, "mix", watch_mix)
    monkeypatch.setattr(attention.relation, "forward", watch_relation)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(images)
    assert seen == dict.fromkeys(("q", "k", "v", "mixed", "log affinity"), torch.float32)
    assert logits.dtype == torch.bfloat16


def test_a_watched_forward_ignores_autocast() -> None:
    model = _network()
    images = _images()
    calibrate(model, [images])
    plain = model.watch(images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = model.watch(images)
    assert (plain.logits == cast.logits).all()
    assert all((plain.trace[key] == cast.trace[key]).all() for key in plain.trace)


def test_calibration_happens_when_asked_and_never_in_a_forward_pass() -> None:
    fresh = LapisViT(SMALL.replace(weight_bits=6))
    before = {name: tensor.clone() for name, tensor in fresh.state_dict().items()}
    for use in (fresh, fresh.watch):
        with pytest.raises(LapisError, match=r"no parameters yet; call lapis\.nn\.calibrate"):
            use(_images())
    assert all((before[name] == tensor).all() for name, tensor in fresh.state_dict().items())
    assert not is_calibrated(fresh)
    model = _network(weight_bits=6)
    assert is_calibrated(model)
    first = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model(_images(1) * 10)
    assert all((first[name] == tensor).all() for name, tensor in model.state_dict().items())
    calibrate(model, [_images(1) * 3, _images(2)])
    assert any((first[name] != tensor).any() for name, tensor in model.state_dict().items())


def test_what_a_dense_network_lacks_is_refused_by_name() -> None:
    attention = _network(relation="dot", quantize=False).blocks[0].attn
    with pytest.raises(LapisError, match="no quantizer"):
        required(attention.v)
    with pytest.raises(LapisError, match="no time constants"):
        with_tau(attention.relation)


@pytest.mark.parametrize("name", ["laplacian", "gaussian", "hamming"])
def test_a_relation_is_not_initialised_by_a_forward_pass(name: str) -> None:
    relation: Any = make_relation(small_config(relation=name), 0)
    q, k, v = torch.randint(0, 16, (3, 4, 2, 5, 3)).float()
    for use in (relation, lambda q, k: relation.mix(q, k, v)):
        with pytest.raises(LapisError, match=r"no parameters yet; call lapis\.nn\.calibrate"):
            use(q, k)
        with torch.no_grad(), pytest.raises(LapisError, match="no parameters yet"):
            use(q, k)
    assert not relation.is_ready


@pytest.mark.parametrize("row_scale", ["exact", "pow2"])
@pytest.mark.parametrize("relation", ["laplacian", "gaussian", "hamming"])
def test_the_first_time_constants_give_each_head_the_sharpness_of_its_readout(
    relation: str, row_scale: RowScale
) -> None:
    config = small_config(relation=relation, row_scale=row_scale, heads=3)
    q, k = torch.randint(0, 16, (2, 4, 3, 17, 8), generator=torch.Generator().manual_seed(1)).float()
    v = torch.randn(4, 3, 17, 8, generator=torch.Generator().manual_seed(2))
    made, fitted = make_relation(config, 0), make_relation(config, 0)
    with torch.no_grad():
        made.init_from_data(q, k, v, v)
        (logarithm,) = made.parameters()
        logarithm.copy_(first_tau(with_tau(made).distance(q, k)).log() + torch.tensor([-1.0, 0.0, 1.0]))
        fitted.init_from_data(q, k, v, made.mix(q, k, v))
    (found,) = fitted.parameters()
    torch.testing.assert_close(found.detach(), logarithm.detach(), atol=1e-5, rtol=0)


def test_softmax_attention_is_that_of_the_dense_network() -> None:
    q, k, v = torch.randn(3, 2, 4, 5, 8, generator=torch.Generator().manual_seed(1))
    bias = torch.randn(4, 5, 5, generator=torch.Generator().manual_seed(2))
    weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5 + bias, dim=-1)
    torch.testing.assert_close(softmax_attention(q, k, v, bias), weights @ v)


@pytest.mark.parametrize("mode", ["unsigned", "offset", "signed"])
def test_a_calibrated_step_is_near_the_least_squared_error(mode: Coding) -> None:
    x = torch.randn(4000, generator=torch.Generator().manual_seed(3)) * 2 + 0.5
    quantizer = ActivationQuantizer(15, mode)
    target = x.clamp_min(0) if mode == "unsigned" else x
    quantizer.calibrate(x)
    error = (quantizer(x) - target).square().mean()
    step = quantizer.log_step.detach().clone()
    for factor in (0.5, 0.7, 1.4, 2.0):
        quantizer.log_step.data = step + np.log(factor)
        assert (quantizer(x) - target).square().mean() > 0.98 * error


def test_weights_at_every_width_stay_on_their_grid() -> None:
    w = torch.randn(7, 50, generator=torch.Generator().manual_seed(3))
    errors = []
    for bits in (2, 3, 4, 6, 8):
        quantizer = WeightQuantizer(7, bits)
        quantizer.calibrate(w)
        codes = quantizer.codes(w)
        assert codes.abs().max() <= 2 ** (bits - 1) - 1
        torch.testing.assert_close(quantizer(w), codes * quantizer.step)
        errors.append(float((quantizer(w) - w).square().mean().detach()))
    assert errors == sorted(errors, reverse=True)


def test_taps_are_the_tokens_after_each_block() -> None:
    model = _network().eval()
    images = _images()
    logits, features = model.tap(images, [1, 0])
    torch.testing.assert_close(logits, model(images), rtol=0, atol=0)
    assert [tuple(f.shape) for f in features] == [(6, 17, 24)] * 2
    torch.testing.assert_close(model.head(model.pool(features[0])), logits)
    with pytest.raises(LapisError, match=r"blocks 0\.\.1"):
        model.tap(images, [2])


def test_a_network_survives_its_file(tmp_path: Path) -> None:
    model = _network(style="beit", weight_bits=6, coding=CodingByPoint(v="offset", qk="signed")).eval()
    calibrate(model, [_images()])
    save_network(tmp_path / "net.safetensors", model, {"note": "here"})
    again = load_network(tmp_path / "net.safetensors")
    assert again.config == model.config
    assert is_calibrated(again)
    assert (again(_images(5)) == model(_images(5))).all()
    assert [p.name for p in tmp_path.iterdir()] == ["net.safetensors"]


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(LapisError, match="cannot write"):
        save_network(blocked / "net.safetensors", _network())
    assert blocked.read_text() == "not a folder"


@pytest.mark.parametrize("shape", [(2, 3, 32, 33), (3, 32, 32), (2, 1, 32, 32)])
def test_images_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(LapisError, match=r"takes \(batch, 3, 32, 32\)"):
        _network()(torch.zeros(shape))


def test_calibration_refuses_nothing_and_nan() -> None:
    with pytest.raises(LapisError, match="no images"):
        calibrate(_network(), [])
    with pytest.raises(LapisError, match="NaN"):
        calibrate(_network(), [torch.full((1, 3, 32, 32), float("nan"))])


def test_compiled_export_sees_one_graph() -> None:
    model = _network().eval()
    images = _images()
    exported = torch.export.export(model, (images,))
    torch.testing.assert_close(exported.module()(images), model(images))


def test_a_vit_can_answer_from_the_mean_of_its_patches_but_is_not_packed_so() -> None:
    torch.manual_seed(0)
    model = LapisViT(small_config(mean_pool=True)).eval()
    images = torch.randn(2, 3, 8, 8)
    calibrate(model, images)
    features = model.forward_features(images)
    torch.testing.assert_close(model(images), model.head(model.norm(features[:, 1:].mean(dim=1))))
    assert LapisConfig.from_dict(model.config.to_dict()) == model.config
    with pytest.raises(LapisError, match="mean_pool=True has no packed form"):
        check_deployable(model.config)
