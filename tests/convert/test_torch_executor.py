"""Evaluation in torch answers as the integer model does, everywhere and exactly."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lapis.config import LapisConfig
from lapis.convert.fold import from_model
from lapis.convert.torch_executor import DeployedEvaluator, TorchExecutor
from lapis.deploy import integer
from lapis.preprocess import Preprocess
from tests.networks import configs, small_config, small_model


@given(config=configs(), seed=st.integers(0, 1 << 16))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_torch_answers_as_integers_do(config: LapisConfig, seed: int) -> None:
    model, images = small_model(config, seed)
    network = from_model(model)
    logits, trace = integer.watch(network, images)
    seen = TorchExecutor(network).watch(torch.from_numpy(images))
    assert (seen.logits.numpy() == logits).all()
    evaluated = DeployedEvaluator(model, network.preprocess)
    assert evaluated.exact
    assert (evaluated(torch.from_numpy(images)).numpy() == network.real_logits(logits)).all()
    assert set(seen.trace) == set(trace)
    for key in trace:
        assert (seen.trace[key] == trace[key]).all(), key


@pytest.mark.parametrize("change", [{"weight_bits": 32}, {"row_scale": "exact"}, {"readout": "real"}])
def test_a_network_without_an_integer_form_is_evaluated_as_it_is(change: dict[str, object]) -> None:
    config = small_config(classes=2, width=8, depth=1)  # fmt: skip
    model, _ = small_model(config.replace(**change))
    evaluated = DeployedEvaluator(model, Preprocess(8))
    assert not evaluated.exact
    assert evaluated.runner is model


def test_autocast_changes_nothing() -> None:
    config = small_config(width=12)  # fmt: skip
    model, images = small_model(config)
    network = from_model(model)
    with torch.autocast("cpu", torch.bfloat16):
        seen = TorchExecutor(network)(torch.from_numpy(images))
    assert (seen.numpy() == integer.run(network, images)).all()
