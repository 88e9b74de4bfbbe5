"""Counts against independent counters: a spike-by-spike walk, torch's FLOP counter on timm, other libraries."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest

from lapis import LapisConfig, preset
from lapis.energy import counts
from lapis.energy.counts import OPERATORS, Operator, deliveries
from lapis.energy.estimate import estimate
from lapis.errors import LapisError
from lapis.spikes import encode
from lapis.trace import POINTS, Point, Tally, Trace
from tests.networks import small_config

Spikes = npt.NDArray[np.bool_]

SMALL = small_config(image_size=6, patch_size=2, mlp_ratio=3, window=5)


def _trace(config: LapisConfig, images: int, seed: int) -> Trace:
    """Random codes at every point, a different share of silence at each."""
    rng = np.random.default_rng(seed)
    trace = Trace(config.window)
    for block in range(config.depth):
        for point in POINTS:
            width = config.hidden if point == "mlp_hidden" else config.width
            codes = rng.integers(1, config.window + 1, (images, config.tokens, width))
            trace.note(block, point, codes * (rng.random(codes.shape) < rng.random()))
    return trace


def _tally(*traces: Trace) -> Tally:
    tally = Tally()
    for trace in traces:
        tally.add(trace)
    return tally


def _walk_linear(spikes: Spikes, targets: int) -> int:
    """Every spike of (T, B, N, inputs) reaches every output neuron of its token."""
    delivered = 0
    for step in spikes:
        for _image, _token, _channel in zip(*np.nonzero(step), strict=True):
            for _target in range(targets):
                delivered += 1
    return delivered


def _walk_relation(q: Spikes, k: Spikes, heads: int) -> int:
    """Comparator (i, j, c) of a head hears query i's channel c and key j's channel c."""
    delivered = 0
    _, images, tokens, width = q.shape
    for step in range(q.shape[0]):
        for image in range(images):
            for head in range(heads):
                for channel in range(head * width // heads, (head + 1) * width // heads):
                    for i in range(tokens):
                        for j in range(tokens):
                            delivered += int(q[step, image, i, channel]) + int(k[step, image, j, channel])
    return delivered


def _walk_value(v: Spikes) -> int:
    """Y_{n,i} = sum_j W_ij S_{n,j}: the spike of token j is added into every token i."""
    delivered = 0
    _, _, tokens, _ = v.shape
    for step in v:
        for _image, _j, _channel in zip(*np.nonzero(step), strict=True):
            for _i in range(tokens):
                delivered += 1
    return delivered


def _walk(config: LapisConfig, trace: Trace) -> dict[tuple[int, Operator], int]:
    """Deliveries counted one at a time from the spike trains, with no formula."""
    found: dict[tuple[int, Operator], int] = {}
    for block in range(config.depth):
        at = {point: encode(trace[block, point], config.window) for point in POINTS}
        found[block, "qkv"] = sum(_walk_linear(at["attention_in"], config.width) for _ in "qkv")
        found[block, "relation"] = _walk_relation(at["q"], at["k"], config.heads)
        found[block, "value"] = _walk_value(at["v"])
        found[block, "proj"] = _walk_linear(at["readout"], config.width)
        found[block, "fc1"] = _walk_linear(at["mlp_in"], config.hidden)
        found[block, "fc2"] = _walk_linear(at["mlp_hidden"], config.width)
    return found


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_deliveries_equal_a_walk_over_every_spike(seed: int) -> None:
    trace = _trace(SMALL, images=2, seed=seed)
    assert deliveries(SMALL, _tally(trace)) == _walk(SMALL, trace)


def test_deliveries_of_a_real_network_equal_the_walk() -> None:
    torch = pytest.importorskip("torch")
    from lapis.nn import LapisViT, calibrate

    torch.manual_seed(0)
    network, images = LapisViT(SMALL).eval(), torch.randn(2, 3, SMALL.image_size, SMALL.image_size)
    calibrate(network, images)
    trace = network.watch(images).trace
    tally = _tally(trace)
    assert any(tally.fired.values())
    assert deliveries(SMALL, tally) == _walk(SMALL, trace)


def test_the_synaptic_convention_counts_what_is_delivered() -> None:
    traces = [_trace(SMALL, images=3, seed=3), _trace(SMALL, images=1, seed=4)]
    tally = _tally(*traces)
    delivered = deliveries(SMALL, tally)
    rows = estimate(SMALL, tally, "synaptic").block_rows
    assert len(rows) == len(delivered)
    counted = {(row.block, row.operator): row.count * tally.images for row in rows}
    assert counted == pytest.approx(delivered, rel=1e-12)


def test_a_full_network_delivers_the_dense_count() -> None:
    """With every neuron firing, deliveries are the dense counts; the relation hears both of its sides."""
    trace = Trace(SMALL.window)
    for block in range(SMALL.depth):
        for point in POINTS:
            shape = (1, SMALL.tokens, SMALL.hidden if point == "mlp_hidden" else SMALL.width)
            trace.note(block, point, np.full(shape, SMALL.window))
    dense = counts.dense_block(SMALL)
    for (_, operator), count in deliveries(SMALL, _tally(trace)).items():
        assert count == dense[operator] * (2 if operator == "relation" else 1)


@pytest.mark.parametrize("operator", OPERATORS)
def test_fan_out_times_inputs_is_the_dense_count(operator: Operator) -> None:
    inputs = sum(counts.neurons(SMALL, point) for point in counts.INPUTS[operator])
    sides = 2 if operator == "relation" else 1
    assert inputs * counts.fan_out(SMALL, operator) == sides * counts.dense_block(SMALL)[operator]


def test_silence_delivers_nothing() -> None:
    trace = _trace(SMALL, images=1, seed=0)
    for key in trace:
        trace.codes[key] = np.zeros_like(trace[key])
    assert set(deliveries(SMALL, _tally(trace)).values()) == {0}


def test_real_readout_has_no_spikes_to_deliver() -> None:
    trace = _trace(SMALL, images=1, seed=0)
    for block in range(SMALL.depth):
        del trace.codes[block, "readout"]
    found = deliveries(SMALL.replace(readout="real"), _tally(trace))
    assert {operator for _, operator in found} == set(OPERATORS) - {"proj"}


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("vit_tiny_patch16_224", "lapis_tiny"),
        ("deit_small_patch16_224", "lapis_small"),
        ("beit_base_patch16_224", "lapis_base"),
        ("beit_large_patch16_224", "lapis_large"),
    ],
)
def test_dense_counts_equal_torchs_flop_counter_on_timm(timm: ModuleType, model: str, name: str) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    fused = timm.layers.use_fused_attn()
    # The counter knows the two products of attention, not the kernel that fuses them.
    timm.layers.set_fused_attn(False)
    try:
        with torch.device("meta"):
            network = timm.create_model(model).eval()
            images = torch.empty(1, 3, 224, 224)
        counter = FlopCounterMode(display=False)
        with counter:
            network(images)
    finally:
        timm.layers.set_fused_attn(bool(fused))
    # It counts a multiply-accumulate as two operations.
    assert counter.get_total_flops() == 2 * counts.dense_model(preset(name))
    found = counter.get_flop_counts()
    block = {path.split(".", 1)[1]: sum(ops.values()) for path, ops in found.items() if ".blocks.3" in path}
    dense = counts.dense_block(preset(name))
    assert block["blocks.3.attn.proj"] == 2 * dense["proj"]
    assert block["blocks.3.mlp.fc1"] == 2 * dense["fc1"]
    assert block["blocks.3.mlp.fc2"] == 2 * dense["fc2"]
    assert block["blocks.3.attn"] == 2 * (dense["qkv"] + dense["relation"] + dense["value"] + dense["proj"])


def _layer() -> tuple[Trace, int]:
    """A trace, and the accumulates that we count for fc1 of its first block over all images."""
    trace = _trace(SMALL, images=2, seed=9)
    return trace, deliveries(SMALL, _tally(trace))[0, "fc1"]


def test_spikingjelly_counts_the_same_synaptic_operations() -> None:
    counter_module = pytest.importorskip(
        "spikingjelly.activation_based.op_counter",
        reason="SpikingJelly is not installed; docs/energy.md has its result",
    )
    import torch

    trace, ours = _layer()
    spikes = torch.from_numpy(encode(trace[0, "mlp_in"], SMALL.window)).float()
    layer = torch.nn.Linear(SMALL.width, SMALL.hidden)
    counter = counter_module.SynOpCounter()
    with torch.no_grad(), counter_module.DispatchCounterMode([counter]):
        layer(spikes)
    assert counter.get_total() == ours
    # The value path of one head, W S at every step: a spike of token j reaches every token i.
    value_spikes = torch.from_numpy(encode(trace[0, "v"], SMALL.window)).float().flatten(0, 1)
    counter = counter_module.SynOpCounter()
    with torch.no_grad(), counter_module.DispatchCounterMode([counter]):
        torch.bmm(torch.full((len(value_spikes), SMALL.tokens, SMALL.tokens), 0.3), value_spikes)
    assert counter.get_total() == deliveries(SMALL, _tally(trace))[0, "value"]
    # Integer codes are not spikes to it: the same layer fed with codes has none.
    counter = counter_module.SynOpCounter()
    with torch.no_grad(), counter_module.DispatchCounterMode([counter]):
        layer(torch.from_numpy(trace[0, "mlp_in"]).float())
    assert counter.get_total() == 0


def test_neurobench_counts_the_same_effective_accumulates() -> None:
    layers = pytest.importorskip(
        "neurobench.metrics.utils.layers", reason="NeuroBench is not installed; docs/energy.md has its result"
    )
    import torch

    trace, ours = _layer()
    spikes = torch.from_numpy(encode(trace[0, "mlp_in"], SMALL.window)).float()
    layer = torch.nn.Linear(SMALL.width, SMALL.hidden)
    effective, spiking = layers.single_layer_MACs(spikes.flatten(0, 2), layer)
    assert (effective, spiking) == (ours, True)
    # Its dense count repeats the layer at every one of the T steps; ours is of one pass.
    dense, _ = layers.single_layer_MACs(spikes.flatten(0, 2), layer, total=True)
    assert dense == SMALL.window * 2 * counts.dense_block(SMALL)["fc1"]
    # Fed with codes it counts the same number, as multiply-accumulates.
    effective, spiking = layers.single_layer_MACs(torch.from_numpy(trace[0, "mlp_in"]).float().flatten(0, 1), layer)
    assert (effective, spiking) == (ours, False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depth": 3}, "block 2 has no activity for attention_in"),
        ({"depth": 1}, "names block 1, but depth=1"),
        ({"width": 8}, "saw 120 neurons"),
        ({"mlp_ratio": 4}, "at point 'mlp_hidden'"),
    ],
)
def test_a_tally_of_another_network_is_refused(change: dict[str, int], message: str) -> None:
    tally = _tally(_trace(SMALL, images=2, seed=0))
    with pytest.raises(LapisError, match=message):
        deliveries(SMALL.replace(**change), tally)


def test_an_empty_tally_is_refused() -> None:
    with pytest.raises(LapisError, match="no images"):
        deliveries(SMALL, Tally())


def test_a_missing_point_is_named() -> None:
    trace = _trace(SMALL, images=1, seed=0)
    missing: tuple[int, Point] = (1, "v")
    del trace.codes[missing]
    with pytest.raises(LapisError, match="block 1 has no activity for v"):
        deliveries(SMALL, _tally(trace))
