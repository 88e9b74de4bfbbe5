"""In the real SpikingJelly a first-spike neuron fires as the simulator's, and its counter counts what ours does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("spikingjelly", reason="spikingjelly is not installed: pip install spikingjelly")

from first_spike import FirstSpikeNode, spike_train
from first_spike import integrate as read_train
from spiking_attention import SpikingAttention, ThresholdNode, counting_rules
from spikingjelly.activation_based import functional
from spikingjelly.activation_based.layer import Linear
from spikingjelly.activation_based.op_counter import ACCounter, DispatchCounterMode, SynOpCounter

from lapis.config import Coding, CodingByPoint, MinCodeByPoint
from lapis.deploy.network import Layer, Network
from lapis.deploy.simulate import integrate, mix, relate, simulate
from lapis.energy.counts import deliveries
from lapis.errors import LapisError
from lapis.nn import LapisAttention, calibrate
from lapis.nn.pixels import normalise
from lapis.ops import l1_distance
from lapis.preprocess import Preprocess
from lapis.spikes import encode, split_on_off
from lapis.trace import Point, Tally, Trace
from research.neuron_chart import follow_neuron
from tests.networks import images_for, small_config, small_model, wide_network

# Sums of float32 in another order; a code is a whole number.
ROUNDING = 1e-4
DEADLINES = MinCodeByPoint(attention_in=2, qk=3, v=2, readout=1, mlp_in=1, mlp_hidden=4)


@pytest.fixture(params=[("unsigned", 1), ("signed", 1), ("signed", 3)], ids=["unsigned", "signed", "deadlines"])
def deployed(request: pytest.FixtureRequest) -> tuple[Network, Trace]:
    """A deployed network, and the codes of the spikes that its simulator fired on two images."""
    mode, min_code = request.param
    network = wide_network(
        coding=CodingByPoint.all(mode), min_code=DEADLINES if min_code > 1 else MinCodeByPoint(), window=7
    )
    return network, simulate(network, images_for(network, 2)).trace


def _train(network: Network, point: Point, codes: Any) -> torch.Tensor:
    """The simulator's spikes at a point, (T, B, N, n) or with OFF neurons (T, B, N, 2 n)."""
    window = network.config.window
    return torch.from_numpy(encode(split_on_off(codes, window) if network.low(point) < 0 else codes, window)).float()


def _part(network: Network, block: int, part: int) -> Layer:
    """One of q, k and v as a layer of its own."""
    layer, width = network.blocks[block].qkv, network.config.width
    rows = slice(part * width, (part + 1) * width)
    return Layer(layer.weight[rows], layer.scale[rows], layer.shift[rows])


def _synapses(network: Network, layer: Layer) -> nn.Module:
    """The integer weights in SpikingJelly's own linear layer."""
    weight = torch.tensor(layer.weight, dtype=torch.float32)
    weight = torch.cat([weight, -weight], dim=1) if network.low("attention_in") < 0 else weight
    linear: nn.Module = Linear(weight.shape[1], weight.shape[0], bias=False, step_mode="m")
    linear.weight = nn.Parameter(weight)
    return linear


@pytest.mark.parametrize("part", [0, 1, 2], ids="qkv")
@torch.no_grad()
def test_neurons_fire_at_the_steps_of_the_simulator(deployed: tuple[Network, Trace], part: int) -> None:
    network, trace = deployed
    points: tuple[Point, ...] = ("q", "k", "v")
    point, window = points[part], network.config.window
    for block in range(network.config.depth):
        node = ThresholdNode.of(
            _part(network, block, part), window, network.low(point) < 0, network.min_code(point, block)
        )
        net = nn.Sequential(_synapses(network, _part(network, block, part)), node)
        functional.set_step_mode(net, "m")
        arrived = _train(network, "attention_in", trace[block, "attention_in"])
        expected = _train(network, point, trace[block, point])
        assert torch.equal(net(arrived), expected)
        assert expected.any()
        # Step by step: the spikes of a window come while the next one, here a silent one, is integrated.
        functional.set_step_mode(net, "s")
        for _ in range(2):
            given = torch.cat([arrived, torch.zeros_like(arrived)])
            seen = torch.stack([net(now) for now in given])
            assert not seen[:window].any()
            assert torch.equal(seen[window:], expected)
            functional.reset_net(net)
            assert (node.step, node.voltage) == (0, 0.0)


@torch.no_grad()
def test_current_and_voltage_are_those_of_the_simulator_at_every_step() -> None:
    network = wide_network(window=7)
    image = images_for(network, 1)[0]
    history = follow_neuron(network, image, block=1, token=3, channel=5)
    node = ThresholdNode(torch.from_numpy(history.threshold[::-1].copy())[None].float(), 7)
    spikes = []
    for step in range(14):
        now = history.arrivals[step].sum() if step < 7 else 0
        spikes.append(float(node(torch.tensor([[float(now)]]))))
        if step < 6:
            assert (float(node.current), float(node.voltage)) == (history.current[step], history.voltage[step])
    expected = np.zeros(14)
    if history.spike < 7:
        expected[7 + history.spike] = 1
    np.testing.assert_array_equal(spikes, expected)


def _attention(mode: Coding) -> tuple[LapisAttention, torch.Tensor, Trace]:
    """A calibrated layer, its input as the values of codes, and its trace."""
    torch.manual_seed(1)
    layer = LapisAttention(12, heads=3, window=7, coding=mode, readout="spikes", row_scale="pow2", weight_bits=6).eval()
    calibrate(layer, [torch.randn(4, 10, 12)])
    x = torch.randn(2, 10, 12)
    return layer, x, layer.watch(x).trace


@pytest.mark.parametrize("mode", ["unsigned", "signed"])
@torch.no_grad()
def test_attention_on_spikes_integrates_to_attention_on_values(mode: Coding) -> None:
    layer, x, trace = _attention(mode)
    codes = torch.from_numpy(trace[0, "attention_in"]).float()
    currents = SpikingAttention(layer)(spike_train(codes, 7, mode == "signed"))
    assert currents.shape == (7, 2, 10, 12)
    torch.testing.assert_close(read_train(currents), layer(x), atol=ROUNDING, rtol=ROUNDING)


@pytest.mark.parametrize("mode", ["unsigned", "signed"])
@torch.no_grad()
def test_its_counter_counts_the_synapses_that_the_simulator_crosses(mode: Coding) -> None:
    layer, _, trace = _attention(mode)
    signed, codes = mode == "signed", torch.from_numpy(trace[0, "attention_in"]).float()
    spiking, spikes = SpikingAttention(layer), spike_train(codes, 7, signed)
    counter, without = SynOpCounter(counting_rules()), SynOpCounter()
    with DispatchCounterMode([counter, without]):
        spiking(spikes)

    def train(point: Point, image: int, heads: int) -> Any:
        """(T, H, N, C) of one image, or 2 C."""
        seen = trace[0, point][image].reshape(10, heads, -1).transpose(1, 0, 2)
        return encode(split_on_off(seen, 7) if signed else seen, 7)

    relation = value = linear = 0
    for image in range(2):
        relation += relate(train("q", image, 3), train("k", image, 3))[1]
        value += mix(train("v", image, 3), np.ones((3, 10, 10), dtype=np.int64), signed)[1]
        for point, outputs in (("attention_in", 36), ("readout", 12)):
            sent = train(point, image, 1)[:, 0]  # type: ignore[arg-type]
            linear += integrate(sent, np.ones((sent.shape[-1], outputs), dtype=np.int64))[1]
    assert min(relation, value, linear) > 0
    assert counter.get_total() == relation + value + linear
    assert counter.get_counts()["Global"][torch.ops.lapis.l1_distance.default] == relation
    assert without.get_total() == value + linear


@torch.no_grad()
def test_the_counts_of_a_whole_network_are_ours() -> None:
    """Attention as one operator on codes, in which SpikingJelly sees no spikes by itself."""
    config = small_config(row_scale="pow2")
    model, images = small_model(config)
    x = normalise(torch.from_numpy(images), Preprocess(config.image_size))
    tally = Tally()
    tally.add(model.watch(x).trace)
    ours = deliveries(config, tally)
    expected = sum(count for (_, operator), count in ours.items() if operator in ("relation", "value"))
    for kind in (SynOpCounter, ACCounter):
        counter = kind(counting_rules())
        with DispatchCounterMode([counter]):
            model(x)
        assert counter.get_counts()["Global"][torch.ops.lapis.attention.default] == expected


def test_a_distance_without_the_native_library_counts_the_same() -> None:
    q, k = torch.tensor([[0.0, 2.0], [1.0, 0.0], [3.0, 3.0]]), torch.tensor([[1.0, 0.0]])
    for kind in (torch.float32, torch.float64):
        counter = SynOpCounter(counting_rules())
        with DispatchCounterMode([counter]):
            l1_distance(q.to(kind), k.to(kind))
        assert counter.get_total() == 4 * 1 + 1 * 3


def test_a_learning_node_finds_its_step_and_every_parameter_gets_a_gradient() -> None:
    torch.manual_seed(0)
    layer = LapisAttention(8, heads=2, window=5, coding="unsigned", readout="spikes")
    net = nn.Sequential(FirstSpikeNode(5, 8), SpikingAttention(layer), FirstSpikeNode(5, 8))
    functional.set_step_mode(net, "m")
    currents = torch.randn(5, 3, 6, 8)
    calibrate(net, currents, missing_only=True)
    spikes = net(currents)
    assert set(spikes.unique().tolist()) == {0.0, 1.0}
    assert int(spikes.sum(0).max()) == 1
    read_train(spikes).square().sum().backward()
    moved = {name for name, one in net.named_parameters() if one.grad is not None and bool(one.grad.any())}
    assert moved == {name for name, _ in net.named_parameters()}


def test_what_cannot_be_spikes_is_refused() -> None:
    with pytest.raises(LapisError, match="give 5 or 10"):
        ThresholdNode(torch.zeros(2, 6), 5)
    with pytest.raises(LapisError, match="readout='spikes'"):
        SpikingAttention(LapisAttention(8, heads=2, readout="real"))
    with pytest.raises(LapisError, match="does not compare codes"):
        SpikingAttention(LapisAttention(8, heads=2, readout="spikes", relation="dot"))
    spiking = SpikingAttention(LapisAttention(8, heads=2, window=5, readout="spikes"))
    with pytest.raises(LapisError, match=r"takes \(5, batch, tokens, 16\)"):
        spiking(torch.zeros(5, 1, 3, 8))
    with pytest.raises(ValueError, match="step_mode can only be"):
        spiking.step_mode = "s"  # type: ignore[assignment]


def test_the_example_learns_and_is_counted(tmp_path: Path) -> None:
    example = Path(__file__).with_name("attention_in_spikingjelly.py")
    printed = subprocess.run(
        [sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    first, last = (float(found) for found in re.findall(r"loss (\d+\.\d+)", printed))
    assert last < first / 2
    counts = dict(re.findall(r"(\w+)\.default +([\d,]+)", printed))
    assert all(int(counts[name].replace(",", "")) > 0 for name in ("mm", "l1_distance", "bmm"))
