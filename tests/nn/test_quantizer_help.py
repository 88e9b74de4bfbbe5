"""What helps unsigned values in training: a negative branch that fades, and a gradient for silent values."""

from __future__ import annotations

import pytest
import torch

from lapis.nn.quantizer import SILENT_WIDTH, ActivationQuantizer

X = torch.linspace(-3, 3, 61)


def quantizer(coding: str, **settings: float) -> ActivationQuantizer:
    made = ActivationQuantizer(7, coding)  # type: ignore[arg-type]
    made.log_step.data.fill_(-1.2)
    made.mark_ready()
    for name, value in settings.items():
        setattr(made, name, value)
    return made.train()


@pytest.mark.parametrize("left", [1.0, 0.4])
def test_a_fading_negative_value_is_a_share_of_what_a_signed_code_gives(left: float) -> None:
    signed, fading, unsigned = quantizer("signed"), quantizer("unsigned", negative=left), quantizer("unsigned")
    expected = torch.where(X < 0, left * signed(X), unsigned(X))
    assert torch.equal(fading(X), expected)
    assert torch.equal(fading.eval()(X), unsigned(X))


def test_a_silent_value_gets_a_gradient_that_falls_with_its_distance_from_zero() -> None:
    plain, helped = quantizer("unsigned"), quantizer("unsigned", silent_gradient=0.5)
    x, gradients = X.clone().requires_grad_(), []
    for each in (plain, helped):
        result = each(x)
        assert torch.equal(result, plain(X))
        gradients.append(torch.autograd.grad(result.sum(), x)[0])
    share = X / (SILENT_WIDTH * plain.step.detach())
    extra = torch.where(X <= 0, 0.5 * (1 + share).clamp_min(0), 0.0)
    torch.testing.assert_close(gradients[1], gradients[0] + extra)
    assert torch.equal(helped.eval()(x), plain(X))


def test_the_gradient_of_silent_codes_has_the_unit_of_codes() -> None:
    helped = quantizer("unsigned", silent_gradient=1.0)
    x = torch.tensor([-1e-6, 0.5], requires_grad=True)
    found = torch.autograd.grad(helped.codes(x).sum(), x)[0]
    # Just below zero a silent code has the gradient of one that spikes: 1/s.
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=0)
