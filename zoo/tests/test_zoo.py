"""The rules of other systems: each equals its equation in float64, has the gradient that it states and its price."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from lapis import relations
from lapis.config import CodingByPoint, LapisConfig
from lapis.convert import from_model
from lapis.deploy import watch
from lapis.energy.activity import Activities
from lapis.energy.conventions import CONVENTIONS
from lapis.energy.operations import Mixing, spiking
from lapis.errors import LapisError
from lapis.nn import LapisViT, Pairwise, calibrate, is_calibrated, load_network, save_network
from lapis.nn.relations import make_relation
from lapis.pack import load, save
from lapis.runtime.engine import Engine
from lapis_zoo import RELATIONS
from lapis_zoo.rules import SystemRule, early_blocks
from lapis_zoo.softmax import nearest_power
from lapis_zoo.spike_trains import Gained, QkToken
from lapis_zoo.steps import gate, signs, thermometer
from tests.networks import small_config, small_model

Array = npt.NDArray[np.float64]
# float32 sums of a few hundred terms.
TOLERANCE = 2e-5
WINDOW, HEADS, TOKENS, WIDTH = 7, 2, 5, 3
ZOO = tuple(RELATIONS)


def _config(name: str, mode: Any = "signed", **changes: Any) -> LapisConfig:
    coding = CodingByPoint.all(mode)
    size = {"window": WINDOW, "heads": HEADS, "width": HEADS * WIDTH, "depth": 10}
    return small_config(relation=name, coding=coding, weight_bits=32, row_scale="exact", **size, **changes)


def _codes(mode: str, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of two images, with silent and with full neurons among them."""
    chosen = np.random.default_rng(seed)
    drawn = chosen.integers(-WINDOW if mode == "signed" else 0, WINDOW + 1, (3, 2, HEADS, TOKENS, WIDTH))
    drawn[:, 0, 0, 0] = 0
    drawn[:, 1, 1, 1] = WINDOW
    q, k, v = torch.from_numpy(drawn).float()
    return q, k, v


def _double(x: Tensor) -> Array:
    return np.asarray(x.double().numpy())


def _bits(codes: Array, signed: bool) -> Array:
    """Rate trains (T, ..., C), or (T, ..., 2 C) of ON and OFF neurons."""
    trains = np.concatenate([codes, -codes], axis=-1) if signed else codes
    steps = np.arange(1, WINDOW + 1).reshape(-1, *[1] * codes.ndim)
    return np.asarray(trains >= steps, dtype=np.float64)


def _distance(q: Array, k: Array) -> Array:
    return np.asarray(np.abs(q[..., :, None, :] - k[..., None, :, :]).sum(axis=-1))


def _softmax(log_a: Array) -> Array:
    a = np.exp(log_a - log_a.max(axis=-1, keepdims=True))
    return np.asarray(a / a.sum(axis=-1, keepdims=True))


def _made(name: str, mode: str, block: int = 9) -> Any:
    """A relation that was initialised from data, with parameters that differ from their first values."""
    q, k, v = _codes(mode, 1)
    relation = make_relation(_config(name, mode), block)
    relation.init_from_data(q, k, v, torch.randn(q.shape, generator=torch.Generator().manual_seed(0)))
    with torch.no_grad():
        for parameter in relation.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return relation


def _gain(relation: Any) -> Array:
    return np.asarray(2.0 ** relation.log2_gain.double().numpy()).reshape(-1, 1, 1)


def _exp(parameter: nn.Parameter) -> Array:
    return np.asarray(parameter.detach().exp().double().numpy())


def _ssa(relation: Any, q: Array, k: Array, v: Array, signed: bool) -> Array:
    """The sum over steps of q AND k, on spike trains."""
    return np.asarray(_gain(relation) * np.einsum("tbhic,tbhjc->bhij", _bits(q, signed), _bits(k, signed)) @ v)


def _xnor(relation: Any, q: Array, k: Array, v: Array, signed: bool) -> Array:
    """The sum over steps of q AND k plus a times the sum of NOT q AND NOT k, on spike trains."""
    a = 1 / (1 + np.exp(-relation.logit.detach().double().numpy())).reshape(-1, 1, 1)
    qs, ks = _bits(q, signed), _bits(k, signed)
    both = np.einsum("tbhic,tbhjc->bhij", qs, ks)
    neither = np.einsum("tbhic,tbhjc->bhij", 1 - qs, 1 - ks)
    return np.asarray(_gain(relation) * (both + a * neither) @ v)


def _eco(relation: Any, q: Array, k: Array, v: Array, signed: bool) -> Array:
    return _softmax(-_distance(q, k) / math.sqrt(WIDTH)) @ v


def _laplacian2(relation: Any, q: Array, k: Array, v: Array, signed: bool) -> Array:
    halving = np.float32(math.log(2)) * relation.tau.detach().numpy().reshape(-1, 1, 1)
    a = 2.0 ** -np.floor(_distance(q, k).astype(np.float32) / halving + np.float32(0.5))
    return np.asarray(a / a.sum(axis=-1, keepdims=True)) @ v


def _sign_keys(relation: Any, q: Array, k: Array, v: Array, signed: bool) -> Array:
    sign = np.where(k > 0, 1.0, -1.0)
    return _softmax(q @ sign.swapaxes(-1, -2) / math.sqrt(WIDTH)) @ v


def _esdsa(relation: Any, q: Array, k: Array, v: Array, signed: bool) -> Array:
    return np.asarray(_gain(relation) * ((q @ k.swapaxes(-1, -2)) @ v))


def _shift_softmax(relation: Any, q: Array, k: Array, v: Array, signed: bool) -> Array:
    s = np.ceil(np.float32(q @ k.swapaxes(-1, -2)) / np.float32(math.sqrt(WIDTH))).astype(np.float64)
    a = 2.0 ** (s - s.max(axis=-1, keepdims=True))
    total = a.sum(axis=-1, keepdims=True)
    powers = 2.0 ** np.arange(12)
    distances = np.abs(total[..., None] - powers)
    # argmin takes the first of equals; the larger power is the last one.
    nearest = powers[::-1][distances[..., ::-1].argmin(axis=-1)]
    return np.asarray(a / nearest) @ v


def _sdsa(relation: Any, q: Array, k: Array, v: Array, signed: bool) -> Array:
    theta = _exp(relation.log_threshold)
    common = np.einsum("tbhjc,tbhjc->bhc", _bits(k, signed), _bits(v, signed))[:, :, None]
    opened = _bits(q, signed).sum(axis=0) * (common >= theta)
    return np.asarray(_gain(relation) * (opened[..., :WIDTH] - opened[..., WIDTH:] if signed else opened))


def _qk_token(relation: Any, q: Array, k: Array, v: Array, signed: bool) -> Array:
    return np.asarray(_gain(relation) * k * (np.abs(q).sum(axis=-1, keepdims=True) >= _exp(relation.log_threshold)))


def _coded_dot(relation: Any, q: Array, k: Array, v: Array, signed: bool) -> Array:
    step = float(relation.ladder.log_step.detach().exp())
    w = _softmax(q @ k.swapaxes(-1, -2) / math.sqrt(WIDTH))
    return np.asarray(np.clip(np.floor(w / step + 0.5), 0, WINDOW) * step @ v)


def _statten(relation: Any, q: Array, k: Array, v: Array, signed: bool) -> Array:
    """Step by step: q of step n times the keys and values of the steps m of the same chunk."""
    qs, ks = _bits(q, signed), _bits(k, signed)
    vs = np.sign(v) * np.asarray(np.abs(v) >= np.arange(1, WINDOW + 1).reshape(-1, 1, 1, 1, 1))
    y = np.zeros(v.shape)
    for n in range(WINDOW):
        for m in range(WINDOW):
            if n // 3 == m // 3:
                y += qs[n] @ ks[m].swapaxes(-1, -2) @ vs[m]
    return np.asarray(_gain(relation) * y)


REFERENCE = {
    "laplacian2": _laplacian2, "ssa": _ssa, "xnor": _xnor, "eco": _eco, "sign_keys": _sign_keys, "esdsa": _esdsa,
    "shift_softmax": _shift_softmax, "sdsa": _sdsa, "qkformer": _ssa, "coded_dot": _coded_dot, "statten": _statten,
}  # fmt: skip


@pytest.mark.parametrize("mode", ["unsigned", "signed"])
@pytest.mark.parametrize("name", ZOO)
def test_a_rule_is_its_equation(name: str, mode: str) -> None:
    relation, (q, k, v) = _made(name, mode), _codes(mode)
    expected = REFERENCE[name](relation, _double(q), _double(k), _double(v), mode == "signed")
    assert np.abs(expected).max() > 0
    np.testing.assert_allclose(relation.mix(q, k, v).detach().numpy(), expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("mode", ["unsigned", "signed"])
def test_early_blocks_of_qkformer_mask_their_keys(mode: str) -> None:
    relation, (q, k, v) = _made("qkformer", mode, block=2), _codes(mode)
    assert isinstance(relation, QkToken)
    assert [isinstance(make_relation(_config("qkformer", mode), block), QkToken) for block in range(10)] == [
        True
    ] * 3 + [False] * 7
    expected = _qk_token(relation, _double(q), _double(k), _double(v), mode == "signed")
    assert np.abs(expected).max() > 0
    np.testing.assert_allclose(relation.mix(q, k, v).detach().numpy(), expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_qkformer_has_as_many_early_blocks_as_its_authors_give_it() -> None:
    assert [early_blocks(depth) for depth in (10, 12)] == [3, 4]


@pytest.mark.parametrize("mode", ["unsigned", "signed"])
def test_scores_of_ssa_and_xnor_are_the_sums_over_steps_exactly(mode: str) -> None:
    """Every number is a small multiple of 1/4, so float32 holds it: the two must be equal, not close."""
    signed = mode == "signed"
    for seed in range(5):
        q, k, _ = _codes(mode, seed)
        qs, ks = (_bits(x.double().numpy(), signed) for x in (q, k))
        both = np.einsum("tbhic,tbhjc->bhij", qs, ks)
        neither = np.einsum("tbhic,tbhjc->bhij", 1 - qs, 1 - ks)
        ssa: Any = make_relation(_config("ssa", mode), 0)
        xnor: Any = make_relation(_config("xnor", mode), 0)
        assert (ssa.scores(q, k).numpy() == both).all()
        assert (xnor.alpha == 0.5).all()
        assert (xnor.scores(q, k).detach().numpy() == both + 0.5 * neither).all()


@pytest.mark.parametrize("name", ["ssa", "xnor", "eco", "esdsa"])
def test_smooth_rules_have_the_gradient_of_their_equation(name: str) -> None:
    """Real values stand for codes, so that no two are equal and nothing is rounded."""
    relation = _made(name, "signed").double()
    chosen = torch.Generator().manual_seed(0)
    inputs = [torch.randn(1, HEADS, 3, WIDTH, generator=chosen, dtype=torch.float64, requires_grad=True) for _ in "qkv"]
    assert torch.autograd.gradcheck(relation.mix, inputs)


def test_the_weight_of_common_silence_learns_by_its_exact_gradient() -> None:
    relation: Any = _made("xnor", "signed").double()
    q, k, v = (x.double() for x in _codes("signed"))

    def of(logit: Tensor) -> Tensor:
        mixed: Tensor = torch.func.functional_call(relation, {"logit": logit}, (q, k, v))
        return mixed

    relation.forward = relation.mix
    assert torch.autograd.gradcheck(of, [relation.logit.detach().clone().requires_grad_()])


def test_keys_learn_through_their_sign_up_to_a_value_of_one() -> None:
    k = torch.tensor([-1.5, -1.0, -0.2, 0.0, 0.2, 1.0, 1.5], requires_grad=True)
    signed = signs(k)
    assert signed.tolist() == [-1, -1, -1, -1, 1, 1, 1]
    signed.sum().backward()
    assert k.grad is not None
    assert k.grad.tolist() == [0, 1, 1, 1, 1, 1, 0]


def test_a_gate_opens_at_its_threshold_and_learns_below_twice_that() -> None:
    total = torch.tensor([[0.0, 2.9, 3.0, 5.9, 6.1]], requires_grad=True)
    threshold = torch.tensor(3.0, requires_grad=True)
    opened = gate(total, threshold)
    assert opened.tolist() == [[0, 0, 1, 1, 1]]
    opened.sum().backward()
    assert total.grad is not None
    assert threshold.grad is not None
    np.testing.assert_allclose(total.grad.numpy(), [[0, 1 / 6, 1 / 6, 1 / 6, 0]])
    # d/ds = -u/s inside, u = total/s, s = 2 theta, scaled by 1/sqrt(5).
    np.testing.assert_allclose(float(threshold.grad), -2 * (2.9 + 3.0 + 5.9) / 36 / math.sqrt(5), rtol=1e-6)


def test_a_rate_train_has_the_slope_of_its_code() -> None:
    z = torch.tensor([0.0, 1.0, 4.0, 7.0], requires_grad=True)
    train = thermometer(z, 7)
    assert train.sum(dim=0).tolist() == [0, 1, 4, 7]
    (train * torch.arange(1.0, 8).view(-1, 1)).sum().backward()
    assert z.grad is not None
    assert z.grad.tolist() == [0.5, 1.5, 4.5, 3.5]


def test_shifted_rows_learn_as_a_softmax_to_the_base_two() -> None:
    """ceil and the nearest power have the slope 1: dW = ln 2 (W dS - W sum_j A_j dS_j / P)."""
    relation, (q, k, _) = _made("shift_softmax", "signed"), _codes("signed")
    q = q[:, :, :1].double().requires_grad_()
    k = k.double()
    direction = torch.randn(2, HEADS, 1, TOKENS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    w = relation.weights(q, k)
    (w * direction).sum().backward()
    with torch.no_grad():
        scores = (q @ k.transpose(-1, -2) / math.sqrt(WIDTH)).ceil()
        a = torch.exp2(scores - scores.amax(dim=-1, keepdim=True))
        p = nearest_power(a.sum(dim=-1, keepdim=True))
        by_score = math.log(2) * (a / p * direction - a / p * (a / p * direction).sum(dim=-1, keepdim=True))
        expected = by_score @ k / math.sqrt(WIDTH)
    assert q.grad is not None
    torch.testing.assert_close(q.grad, expected)


def test_laplacian2_learns_as_an_unrounded_power_of_two() -> None:
    relation: Any = _made("laplacian2", "signed")
    distance = torch.arange(40.0).expand(1, HEADS, 1, 40).clone().requires_grad_()
    log_a = relation.log_affinity(distance)
    halvings = log_a.detach() / math.log(2)
    assert (halvings.round() - halvings).abs().max() < TOLERANCE
    log_a.sum().backward()
    tau = relation.tau.detach()
    assert distance.grad is not None
    torch.testing.assert_close(distance.grad, (-1 / tau).view(-1, 1, 1).expand_as(distance).contiguous())
    # ln A = -D / tau by ln tau.
    torch.testing.assert_close(relation.log_tau.grad, 780 / tau)


@pytest.mark.parametrize("mode", ["unsigned", "signed"])
def test_laplacian2_is_deployed_as_a_table_of_powers_of_two(mode: Any, tmp_path: Any) -> None:
    model, images = small_model(small_config(relation="laplacian2", coding=CodingByPoint.all(mode)))
    network = from_model(model)
    save(tmp_path / "net.safetensors", network)
    packed = load(tmp_path / "net.safetensors")
    assert packed.config.relation == "table"
    assert all((block.affinity.mantissa == 1 << 31).all() for block in packed.blocks if block.affinity is not None)
    assert (watch(packed, images).logits == Engine(packed).watch(images).logits).all()


def test_the_nearest_power_of_two_turns_at_one_and_a_half() -> None:
    x = torch.tensor([1.0, 1.49, 1.5, 2.0, 2.99, 3.0, 5.9, 6.0])
    assert nearest_power(x).tolist() == [1, 1, 2, 2, 2, 4, 4, 8]


@pytest.mark.parametrize("name", ["ssa", "xnor", "esdsa", "sdsa", "statten", "qkformer"])
def test_a_gain_is_the_power_of_two_that_gives_the_readout_of_softmax_attention(name: str) -> None:
    q, k, v = _codes("signed")
    relation: Any = make_relation(_config(name), 0)
    assert isinstance(relation, Gained)
    assert not relation.is_ready
    readout = 3 * torch.randn(q.shape, generator=torch.Generator().manual_seed(0))
    relation.init_from_data(q, k, v, readout)
    assert relation.is_ready
    assert (relation.log2_gain == relation.log2_gain.round()).all()
    ratio = relation.mix(q, k, v).std(dim=(0, 2, 3)) / readout.std(dim=(0, 2, 3))
    assert ((ratio > 0.70) & (ratio < 1.42)).all()
    assert not relation.log2_gain.requires_grad


@pytest.mark.parametrize("name", ZOO)
def test_every_rule_trains_and_survives_its_file(name: str, tmp_path: Any) -> None:
    torch.manual_seed(0)
    model = LapisViT(_config(name, image_size=16, classes=4))
    images = torch.randn(8, 3, 16, 16)
    calibrate(model, [images])
    assert is_calibrated(model)
    model(images).square().sum().backward()
    learned = [p for block in model.blocks for p in block.attn.relation.parameters(recurse=False)]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in learned)
    qkv = model.blocks[-1].attn.qkv.weight.grad
    assert qkv is not None
    # q, k and v all learn in the last block, which is a late one.
    assert all(part.any() for part in qkv.chunk(3))
    save_network(tmp_path / "net.safetensors", model.eval())
    assert (load_network(tmp_path / "net.safetensors")(images) == model(images)).all()


@pytest.mark.parametrize("name", ZOO)
def test_a_rule_says_where_it_comes_from(name: str) -> None:
    rule = relations.rule_of(name)
    assert isinstance(rule, SystemRule)
    assert rule.equation
    assert rule.system
    assert bool(rule.adapted) or rule.origin != "adapted"


@pytest.mark.parametrize("name", ["laplacian2", "eco", "sign_keys", "shift_softmax", "coded_dot"])
def test_a_normalised_rule_has_rows_of_about_one_and_the_others_do_not(name: str) -> None:
    q, k, _ = _codes("signed")
    relation = _made(name, "signed")
    assert isinstance(relation, Pairwise)
    mass = relation.weights(0.2 * q if not relation.on_codes else q, k).sum(dim=-1)
    assert relations.rule_of(name).normalised
    # The ladder of coded_dot rounds each weight by itself.
    assert ((mass > 0.5) & (mass < 1.5)).all()
    assert not any(relations.rule_of(other).normalised for other in ("ssa", "xnor", "esdsa", "sdsa", "statten"))


def test_relative_positions_are_refused_where_a_rule_has_no_place_for_them() -> None:
    with pytest.raises(LapisError, match=r"relation='ssa' has no place for the relative positions.*use style='vit'"):
        small_config(relation="ssa", style="beit")
    model = LapisViT(_config("eco", style="beit", image_size=16))
    calibrate(model, [torch.randn(2, 3, 16, 16)])
    model(torch.randn(2, 3, 16, 16)).square().sum().backward()
    position: Any = model.blocks[0].attn.relation
    assert position.position.table.grad.any()


RATES: dict[Any, float] = {
    "q": 0.5,
    "k": 0.25,
    "v": 0.75,
    "attention_in": 0.5,
    "readout": 0.5,
    "mlp_in": 0.5,
    "mlp_hidden": 0.5,
}


def _priced(name: str, convention: str, block: int = 9, **changes: Any) -> list[tuple[str, str, float]]:
    """N = 5, D = 8, H = 2, C = 4: N^2 D = 200, H N^2 = 50, N D = 40, N C D = 160."""
    config = LapisConfig(
        image_size=32, patch_size=16, width=8, heads=2, depth=10, window=15, relation=name, row_scale="pow2", **changes
    )
    mixing = Mixing(config, block, Activities.uniform(config, RATES), CONVENTIONS[convention])
    return [(row.operator, row.kind, row.count) for row in relations.rule_of(name).operations(mixing)]


# The value path of the paper is driven by the mean of q, k and v, 1/2; that of the deployed network by v, 3/4.
PAPER = {
    "laplacian2": [
        ("relation", "accumulate", 200), ("affinity", "shift", 50), ("row scale", "shift", 50),
        ("value shift", "shift", 100), ("value", "accumulate", 100),
    ],
    "ssa": [
        ("relation", "accumulate", 200), ("code sums", "accumulate", 30), ("affinity", "accumulate", 100),
        ("gain", "shift", 40), ("value", "accumulate", 100),
    ],
    "xnor": [
        ("relation", "accumulate", 200), ("code sums", "accumulate", 30), ("affinity", "accumulate", 100),
        ("gain", "shift", 40), ("affinity", "scale", 50), ("value", "accumulate", 100),
    ],
    "eco": [
        ("relation", "accumulate", 200), ("affinity", "lookup", 50), ("row scale", "shift", 50),
        ("value", "accumulate", 100),
    ],
    "sign_keys": [
        ("relation", "accumulate", 100), ("affinity", "lookup", 50), ("row scale", "shift", 50),
        ("value", "accumulate", 100),
    ],
    "esdsa": [("relation", "mac", 160), ("value", "mac", 160), ("gain", "shift", 40)],
    "shift_softmax": [
        ("relation", "product", 200), ("affinity", "shift", 50), ("row scale", "shift", 50),
        ("value shift", "shift", 100), ("value", "accumulate", 100),
    ],
    "sdsa": [("relation", "accumulate", 10), ("value", "accumulate", 20), ("gain", "shift", 40)],
    "qkformer": [
        ("relation", "accumulate", 200), ("code sums", "accumulate", 30), ("affinity", "accumulate", 100),
        ("gain", "shift", 40), ("value", "accumulate", 100),
    ],
    "coded_dot": [
        ("relation", "product", 200), ("affinity", "lookup", 50), ("row scale", "shift", 50),
        ("value", "accumulate", 100),
    ],
    "statten": [("relation", "accumulate", 1200), ("value", "accumulate", 1200), ("gain", "shift", 40)],
}  # fmt: skip


@pytest.mark.parametrize("name", ZOO)
def test_the_operations_of_a_rule_are_those_counted_by_hand(name: str) -> None:
    assert _priced(name, "paper") == PAPER[name]


def test_conventions_count_the_rules_each_in_its_way() -> None:
    assert _priced("esdsa", "lenient") == [
        ("relation", "accumulate", 80),
        ("value", "accumulate", 80),
        ("gain", "shift", 40),
    ]
    assert _priced("esdsa", "deployed")[:2] == [("relation", "product", 160), ("value", "product", 160)]
    assert _priced("ssa", "strict")[-1] == ("value", "mac", 100)
    # A power of two is a shift where another weight is a multiplication.
    assert _priced("laplacian2", "strict")[-2:] == [("value shift", "shift", 100), ("value", "accumulate", 100)]
    assert _priced("sdsa", "synaptic") == [("relation", "accumulate", 10), ("value", "accumulate", 20)]
    assert _priced("qkformer", "paper", block=2) == [
        ("relation", "accumulate", 20), ("value", "accumulate", 10), ("gain", "shift", 40)
    ]  # fmt: skip


def test_blocks_without_values_project_queries_and_keys_only() -> None:
    config = LapisConfig(image_size=32, patch_size=16, width=8, heads=2, depth=10, relation="qkformer")
    rows = spiking(config, Activities.uniform(config, RATES), CONVENTIONS["paper"])
    # 3 N D^2 = 960, half of it fires.
    assert [row.count for row in rows if row.operator == "qkv"] == [320.0] * 3 + [480.0] * 7
