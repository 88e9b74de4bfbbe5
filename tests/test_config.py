"""Configurations: presets, rules and errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lapis.config import PRESETS, CodingByPoint, LapisConfig, MinCodeByPoint, preset
from lapis.deploy.network import check_deployable
from lapis.errors import LapisError


@pytest.mark.parametrize(
    ("name", "style", "width", "depth", "heads", "window", "tokens"),
    [
        ("lapis_tiny", "vit", 192, 12, 3, 15, 197),
        ("lapis_small", "vit", 384, 12, 6, 15, 197),
        ("lapis_base", "beit", 768, 12, 12, 15, 197),
        ("lapis_large", "beit", 1024, 24, 16, 20, 197),
    ],
)
def test_presets_are_the_papers_models(
    name: str, style: str, width: int, depth: int, heads: int, window: int, tokens: int
) -> None:
    config = preset(name)
    seen = (config.style, config.width, config.depth, config.heads, config.window, config.tokens)
    assert seen == (style, width, depth, heads, window, tokens)


@pytest.mark.parametrize("name", PRESETS)
def test_a_configuration_survives_a_file(name: str) -> None:
    depth = preset(name).depth
    deadlines = MinCodeByPoint(v=4, mlp_in=tuple(range(1, 13)) * (depth // 12))
    config = preset(name, coding=CodingByPoint(qk="signed"), weight_bits=6, min_code=deadlines)
    assert LapisConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"heads": 5}, "heads=5 does not divide width=192; use 1, 2, 3, 4, 6"),
        ({"image_size": 100}, "nearest is 96"),
        ({"relation": "cosine"}, "use laplacian, dot, gaussian"),
        ({"row_scale": "softmax"}, "use exact or pow2"),
        ({"readout": "none"}, "use real or spikes"),
        ({"style": "swin"}, "use vit or beit"),
        ({"weight_bits": 6.0}, "use 2, 3, 4, 5, 6, 7, 8 or 32"),
        ({"width": 10**15 + 1, "heads": 2}, "does not divide"),
        ({"weight_bits": 12}, "use 2, 3, 4, 5, 6, 7, 8 or 32"),
        ({"window": 0}, "outside 1..63"),
        ({"depth": 0}, "at least 1"),
        ({"classes": 2.0}, "at least 1"),
        ({"coding": {"qk": "ternary"}}, "use unsigned, offset or signed"),
        ({"coding": {"hidden": "signed"}}, "did you mean 'mlp_hidden'"),
        ({"coding": 3}, "must be CodingByPoint"),
        ({"widht": 3}, "did you mean 'width'"),
        ({"affinity_bits": 16}, "from 1 to 15"),
        ({"affinity_bits": 8.0}, "from 1 to 15"),
        ({"affinity_bits": True}, "from 1 to 15"),
        ({"quantize": False, "weight_bits": 6}, "turn quantizers on"),
        ({"quantize": False, "relation": "hamming"}, "needs quantize=True"),
        ({"quantize": "yes"}, "true or false"),
        ({"min_code": {"v": 0}}, "from 1 (every code but zero fires) to the window, 15"),
        ({"min_code": {"v": 16}}, "to the window, 15"),
        ({"min_code": {"v": True}}, "must be an integer"),
        ({"min_code": {"mlp_in": [1, 2]}}, "one for each of the 12 blocks"),
        ({"min_code": {"hidden": 2}}, "did you mean 'mlp_hidden'"),
        ({"min_code": 3}, "must be MinCodeByPoint"),
        ({"activation": "swish"}, "use gelu or relu"),
    ],
)
def test_an_invalid_choice_is_refused_with_what_is_allowed(change: dict[str, Any], words: str) -> None:
    with pytest.raises(LapisError) as error:
        preset("lapis_tiny", **change)
    assert words in str(error.value)


def test_a_narrow_affinity_is_kept_where_a_network_is_deployed_and_gone_where_it_is_dense() -> None:
    narrow = preset("lapis_tiny", affinity_bits=8)
    assert narrow.to_dict() == {**preset("lapis_tiny").to_dict(), "affinity_bits": 8}
    assert narrow.deployed().affinity_bits == 8
    assert narrow.dense() == preset("lapis_tiny").dense()
    assert preset("lapis_tiny").deployed().affinity_bits == 5


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(LapisError, match="did you mean 'lapis_tiny'"):
        preset("lapis_tini")


def test_a_deployed_configuration_passes_the_check_that_others_fail() -> None:
    deployed = preset("lapis_tiny").deployed()
    check_deployable(deployed)
    assert deployed.weight_bits == 6
    for change in ({"row_scale": "exact"}, {"readout": "real"}, {"relation": "gaussian"}):
        with pytest.raises(LapisError, match="has no spiking form"):
            check_deployable(deployed.replace(**change))
    assert deployed.dense() == preset("lapis_tiny").dense()
