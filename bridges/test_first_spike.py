"""First-spike neurons are the same in both step modes, fire once, learn, and their distances are counted."""

from __future__ import annotations

import pytest
import torch
from torch import nn

pytest.importorskip("spikingjelly", reason="spikingjelly is not installed: pip install spikingjelly")

from first_spike import FirstSpikeNode, counting_rules, integrate, spike_train
from spikingjelly.activation_based import functional, layer
from spikingjelly.activation_based.op_counter import DispatchCounterMode, SynOpCounter


@pytest.mark.parametrize("signed", [False, True])
def test_whoever_reads_a_train_as_codes_sends_its_gradient_back_unchanged(signed: bool) -> None:
    codes = torch.tensor([[0.0, 1.0, 4.0, 5.0] + [-1.0, -5.0] * signed], requires_grad=True)
    wanted = torch.arange(1.0, codes.numel() + 1)
    read = integrate(spike_train(codes, 5, signed))
    if signed:
        on, off = read.chunk(2, dim=-1)
        read = on - off
    assert torch.equal(read, codes)
    (read * wanted).sum().backward()
    assert codes.grad is not None
    torch.testing.assert_close(codes.grad[0], wanted)


@pytest.mark.parametrize("signed", [False, True])
def test_single_steps_give_the_spikes_and_gradients_of_whole_windows(signed: bool) -> None:
    torch.manual_seed(2)
    currents, wanted = torch.randn(5, 3, 4), torch.randn(5, 3, 8 if signed else 4)
    node = FirstSpikeNode(5, 4, signed, min_code=2)
    results = []
    for mode in ("m", "s"):
        node.step_mode = mode
        given = currents.clone().requires_grad_()
        silence = torch.zeros_like(currents)
        # The spikes of a window come while the next one, here a silent one, is integrated.
        spikes = node(given) if mode == "m" else torch.stack([node(now) for now in torch.cat([given, silence])])[5:]
        (spikes * wanted).sum().backward()
        results.append((spikes.detach(), given.grad))
        functional.reset_net(node)
        assert (node.step, node.voltage) == (0, 0.0)
    torch.testing.assert_close(results[0], results[1])
    spikes = results[0][0]
    assert set(spikes.unique().tolist()) == {0.0, 1.0}
    assert int(spikes.sum(0).max()) == 1
    # A code of size 1 would fire in the last step.
    assert not spikes[-1].any()


def test_the_code_is_the_rounded_voltage() -> None:
    node = FirstSpikeNode(4, 1, signed=True, step_mode="m")
    with torch.no_grad():
        node.log_step.fill_(0.5).log_()
        node.bias.fill_(0.25)
        node.initialized.fill_(True)
    # Codes -4, -1, 0, 1, 2 and 4: clamped and rounded half up.
    voltage = torch.tensor([-9.0, -0.9, -0.5, 0.0, 0.7, 9.0])[:, None]
    assert node.codes_of(voltage).flatten().tolist() == [-4.0, -1.0, 0.0, 1.0, 2.0, 4.0]


def test_every_parameter_learns() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(FirstSpikeNode(5, 8), layer.Linear(8, 6, bias=False), FirstSpikeNode(5, 6))
    functional.set_step_mode(net, "m")
    integrate(net(torch.rand(5, 3, 8))).square().sum().backward()
    assert all(one.grad is not None and bool(one.grad.any()) for one in net.parameters())
    again = nn.Sequential(FirstSpikeNode(5, 8), layer.Linear(8, 6, bias=False), FirstSpikeNode(5, 6))
    again.load_state_dict(net.state_dict())
    assert again[0].initialized


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"x_seq must have shape \[5, ...\] with time first, but got \(4, 1, 2\)"):
        FirstSpikeNode(5, 2, step_mode="m")(torch.zeros(4, 1, 2))
    with pytest.raises(ValueError, match="T must be a positive integer, but got 0"):
        FirstSpikeNode(0, 2)
    with pytest.raises(ValueError, match=r"min_code must be in 1\.\.5, but got 6"):
        FirstSpikeNode(5, 2, min_code=6)
    with pytest.raises(ValueError, match="step_mode"):
        FirstSpikeNode(5, 2, step_mode="x")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_states_have_the_type_of_the_input(dtype: torch.dtype) -> None:
    node = FirstSpikeNode(3, 2).to(dtype)
    for _ in range(4):
        assert node(torch.rand(5, 2, dtype=dtype)).dtype == dtype
    assert node.voltage.dtype == node.codes.dtype == dtype
    assert node.step == 1


def test_a_distance_counts_each_spike_and_each_token_that_it_meets() -> None:
    q, k = torch.tensor([[0.0, 2.0], [1.0, 0.0], [3.0, 3.0]]), torch.tensor([[1.0, 0.0]])
    for p, expected in ((1.0, 4 * 1 + 1 * 3), (3.0, 0)):
        counter = SynOpCounter(counting_rules())
        with DispatchCounterMode([counter]):
            torch.cdist(q, k, p=p)
        assert counter.get_total() == expected
