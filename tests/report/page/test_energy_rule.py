"""The energy rule of the live page gives what the energy model gives, at any activities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from lapis.energy import CONVENTIONS, Activities, estimate
from lapis.energy.counts import needed_points
from lapis.report.page.live import SILENT, energy_rule
from lapis.report.page.page import energy_rows
from tests.networks import small_config

RELATIVE = 1e-12
CONFIGS = {
    "vit": small_config(),
    "beit": small_config(style="beit"),
    "deadlines": small_config(window=15).replace(weight_bits=8),
}


def at(quantity: dict[str, float], rates: Mapping[Any, float]) -> float:
    return sum(slope * (1.0 if name == SILENT else rates[name]) for name, slope in quantity.items())


@pytest.mark.parametrize("costs", ["45nm", "45nm_int8"])
@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_rule_is_the_estimate_of_any_activities(name: str, convention: str, costs: str) -> None:
    config, random = CONFIGS[name], np.random.default_rng(5)
    points = needed_points(config)
    blocks = [{point: float(random.random()) for point in points} for _ in range(config.depth)]
    given = Activities({(block, point): rate for block, rates in enumerate(blocks) for point, rate in rates.items()})
    wanted: dict[str, Any] = energy_rows(estimate(config, given, convention, costs))
    rule = energy_rule(config, convention, costs)
    mean = {point: float(np.mean([rates[point] for rates in blocks])) for point in points}
    for found, row in zip(rule["rows"], wanted["rows"], strict=True):
        assert all(found[name] == row[name] for name in ("operator", "quantized", "dense"))
        for kind in ("mj", "count"):
            np.testing.assert_allclose(at(found["ours"][kind], mean), row["ours"][kind], rtol=RELATIVE)
    assert all(rule[name] == wanted[name] for name in ("dense_energy_mj", "quantized_mj", "latency_steps"))
    np.testing.assert_allclose(at(rule["skipping_mj"], mean), wanted["skipping_mj"], rtol=RELATIVE)
