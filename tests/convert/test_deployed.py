"""Evaluation in torch answers as the integer model does, everywhere and exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lapis.convert.deployed import Deployed, as_deployed
from lapis.convert.from_model import from_model
from lapis.convert.trained import to_tensor
from tests.convert.test_simulate import configs

from lapis.config import LapisConfig
from lapis.preprocess import Preprocess

if TYPE_CHECKING:
    from tests.conftest import SmallModel


@given(config=configs(), seed=st.integers(0, 1 << 16))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_torch_answers_as_integers_do(config: LapisConfig, seed: int, small_model: SmallModel) -> None:
    model, images = small_model(config, seed)
    network = from_model(model)
    logits, trace = network.watch(images)
    evaluated = as_deployed(model, network.preprocess)
    assert isinstance(evaluated, Deployed)
    seen = evaluated.watch(to_tensor(images, network.preprocess))
    assert (seen.logits.numpy() == logits).all()
    assert set(seen.trace) == set(trace)
    for key in trace:
        assert (seen.trace[key] == trace[key]).all(), key


@pytest.mark.parametrize("change", [{"weight_bits": 32}, {"row_scale": "exact"}, {"readout": "real"}])
def test_a_network_without_an_integer_form_is_evaluated_as_it_is(
    change: dict[str, object], small_model: SmallModel
) -> None:
    config = LapisConfig(
        image_size=8, patch_size=4, classes=2, width=8, depth=1, heads=2, row_scale="pow2", readout="spikes",
        weight_bits=6,
    )  # fmt: skip
    model, _ = small_model(config.replace(**change))
    assert as_deployed(model, Preprocess(8)) is model


def test_autocast_changes_nothing(small_model: SmallModel) -> None:
    config = LapisConfig(
        image_size=8, patch_size=4, classes=3, width=12, depth=2, heads=2, row_scale="pow2", readout="spikes",
        weight_bits=6,
    )  # fmt: skip
    model, images = small_model(config)
    network = from_model(model)
    with torch.autocast("cpu", torch.bfloat16):
        seen = Deployed(network)(to_tensor(images, network.preprocess))
    assert (seen.numpy() == network.forward(images)).all()
