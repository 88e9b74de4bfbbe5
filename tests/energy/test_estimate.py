"""Laws of the estimate: it grows with activity, adds over blocks, and keeps its dense terms in silence."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapis import LapisConfig, LapisError, preset
from lapis.config import CodingByPoint
from lapis.energy import CONVENTIONS, Activities, estimate, load_costs, side_by_side
from lapis.energy.conventions import convention_named
from lapis.energy.costs import CIRCUITS
from lapis.energy.estimate import total_mj
from lapis.trace import POINTS, Point
from tests.networks import small_config

DEPLOYED = small_config(style="beit", image_size=12, classes=5, width=8, depth=3, window=7)
VARIANTS = [
    DEPLOYED,
    DEPLOYED.replace(weight_bits=32, row_scale="exact", readout="real", style="vit"),
    DEPLOYED.replace(coding=CodingByPoint.all("signed")),
    DEPLOYED.replace(relation="hamming"),
    DEPLOYED.replace(relation="gaussian", weight_bits=32),
    DEPLOYED.replace(relation="dot", weight_bits=32),
]
shares = st.floats(0, 1)
rates_of = st.fixed_dictionaries(dict.fromkeys(POINTS, shares))
variants = st.sampled_from(VARIANTS)
names = st.sampled_from(list(CONVENTIONS))
memories = st.sampled_from(["off", "once", "each"])


def _all(rate: float) -> dict[Point, float]:
    return dict.fromkeys(POINTS, rate)


@given(variants, names, memories, rates_of, st.sampled_from(POINTS), shares)
def test_energy_never_falls_when_a_point_fires_more(
    config: LapisConfig, name: str, memory: Any, rates: dict[Point, float], point: Point, more: float
) -> None:
    before = estimate(config, rates, name, memory=memory)
    after = estimate(config, rates | {point: max(rates[point], more)}, name, memory=memory)
    assert after.energy_mj >= before.energy_mj
    assert after.dense_energy_mj == before.dense_energy_mj


@given(names, rates_of)
def test_energy_rises_with_every_operator_that_spikes_drive(name: str, rates: dict[Point, float]) -> None:
    less = {point: rate / 2 for point, rate in rates.items()}
    for point in ("attention_in", "v", "readout", "mlp_in", "mlp_hidden"):
        low = estimate(DEPLOYED, less | {point: 0.25}, name).energy_mj
        assert estimate(DEPLOYED, less | {point: 0.75}, name).energy_mj > low


@given(variants, names, memories, st.lists(rates_of, min_size=3, max_size=3))
def test_energy_adds_over_blocks(config: LapisConfig, name: str, memory: Any, blocks: list[dict[Point, float]]) -> None:
    def rho(rates: list[dict[Point, float]]) -> Activities:
        return Activities({(block, point): of[point] for block, of in enumerate(rates) for point in POINTS})

    whole = estimate(config, rho(blocks), name, memory=memory)
    around = total_mj(row for row in whole.block_rows if row.block is None)
    apart = 0.0
    for rates in blocks:
        alone = estimate(config.replace(depth=1), rho([rates]), name, memory=memory)
        apart += total_mj(row for row in alone.block_rows if row.block is not None)
    assert whole.energy_mj == pytest.approx(apart + around, rel=1e-12)


@given(variants, names, memories, rates_of)
def test_the_total_is_the_sum_of_its_rows(
    config: LapisConfig, name: str, memory: Any, rates: dict[Point, float]
) -> None:
    made = estimate(config, rates, name, memory=memory)
    assert made.energy_mj == math.fsum(row.energy_mj for row in made.rows)
    assert made.energy_mj == pytest.approx(math.fsum(row.energy_mj for row in made.block_rows), rel=1e-12)
    assert made.dense_energy_mj == math.fsum(row.energy_mj for row in made.networks()["dense"])
    assert all(row.energy_mj == row.count * row.cost_pj / 1e9 for row in made.rows)
    parts = [total_mj(made.rows, part) for part in ("patch", "attention", "mlp", "stream", "head")]
    assert made.energy_mj == pytest.approx(sum(parts), rel=1e-12)


@pytest.mark.parametrize("name", CONVENTIONS)
def test_silence_leaves_only_what_no_spike_decides(name: str) -> None:
    silent = estimate(DEPLOYED, _all(0.0), name)
    for row in silent.rows:
        assert (row.activity is None) == (not row.driven)
        if row.driven:
            assert row.count == 0
    left = {row.operator for row in silent.rows if row.count}
    ends = {"patch embedding", "head"}
    pair = {"relation", "affinity", "row scale"}
    rest = {"row sum", "position", "membranes", "readout membranes", "norm", "residual", "pool"}
    assert (
        left
        == {
            "paper": ends | pair,
            "full": ends | pair | rest,
            "strict": ends | pair,
            "lenient": ends | pair - {"relation"},
            "deployed": ends | pair,
            "synaptic": set(),
        }[name]
    )


def test_synaptic_silence_costs_nothing_and_has_no_ratio() -> None:
    silent = estimate(DEPLOYED, _all(0.0), "synaptic")
    assert silent.energy_mj == 0
    assert silent.ratio == math.inf
    assert silent.to_dict()["ratio"] is None
    json.dumps(silent.to_dict(), allow_nan=False)


@given(rates_of)
def test_conventions_keep_their_order(rates: dict[Point, float]) -> None:
    made = {one.convention.name: one.energy_mj for one in side_by_side(DEPLOYED, rates)}
    assert list(made) == list(CONVENTIONS)
    assert made["lenient"] <= made["paper"] <= made["full"]
    assert made["deployed"] <= made["paper"] <= made["strict"]


def test_circuits_are_counted_by_pairs_channels_and_rows_whatever_fires() -> None:
    config = DEPLOYED
    for rate in (0.0, 0.7):
        made = estimate(config, _all(rate), costs="45nm_gates")
        assert made.convention.name == "gates"
        pairs, rows = config.depth * config.heads * config.tokens**2, config.depth * config.heads * config.tokens
        uses = {row.kind: row.count for row in made.rows if row.kind in CIRCUITS}
        channels = pairs * config.head_width
        assert uses == {
            "compare": channels, "affinity": pairs, "row_sum": pairs, "row_exponent": rows, "weigh": channels
        }  # fmt: skip


def test_narrower_affinities_cost_less_in_gates_and_the_same_in_the_papers_table() -> None:
    wide, narrow = (DEPLOYED.replace(affinity_bits=bits) for bits in (15, 4))
    in_gates = [estimate(config, _all(0.3), costs="45nm_gates").energy_mj for config in (narrow, wide)]
    assert in_gates[0] < in_gates[1]
    assert estimate(narrow, _all(0.3)).energy_mj == estimate(wide, _all(0.3)).energy_mj


def test_what_has_no_circuits_cannot_be_priced_by_them() -> None:
    with pytest.raises(LapisError, match="prices operations and no circuits"):
        estimate(DEPLOYED, _all(0.3), "gates")
    with pytest.raises(LapisError, match="relation='gaussian' has no circuits"):
        estimate(DEPLOYED.replace(relation="gaussian"), _all(0.3), costs="45nm_gates")
    names = [one.convention.name for one in side_by_side(DEPLOYED, _all(0.3), "45nm_gates")]
    assert names == [*CONVENTIONS, "gates"]


def test_deadlines_shorten_the_windows_in_which_membranes_integrate() -> None:
    def updates(config: LapisConfig) -> float:
        return sum(row.count for row in estimate(config, _all(0.5), "full").rows if "membranes" in row.operator)

    early = DEPLOYED.replace(min_code={"mlp_in": (1, 4, 7)})
    # T - z0 + 1 steps and one addition for those that are left out, in front of the hidden neurons.
    saved = (0 + 2 + 5) * DEPLOYED.tokens * DEPLOYED.hidden
    assert updates(DEPLOYED) - updates(early) == saved


def test_full_adds_exactly_what_it_names() -> None:
    """Lapis-L at 0.9 pJ: T membrane updates behind six linear layers are 0.78 mJ, behind the readout 0.09."""
    config = preset("lapis_large", row_scale="pow2", readout="spikes")
    paper, full = estimate(config, _all(0.3)), estimate(config, _all(0.3), "full")
    operators = {row.operator for row in paper.rows}
    added = {row.operator for row in full.rows} - operators
    assert added == {"row sum", "position", "membranes", "readout membranes", "norm", "residual", "pool"}
    assert total_mj(row for row in full.rows if row.operator in operators) == pytest.approx(paper.energy_mj)
    membranes = total_mj(row for row in full.rows if row.operator == "membranes")
    neurons = 24 * 197 * (3 + 1 + 4 + 1) * 1024
    assert membranes == pytest.approx(20 * neurons * 0.9e-9)
    assert f"{membranes:.2f}" == "0.78"


def test_the_residual_stream_is_counted_value_by_value() -> None:
    """LayerNorm: 2 additions and 2 MACs a value and a scaling a token, twice a block and once on the pooled token."""
    tokens, width, depth = DEPLOYED.tokens, DEPLOYED.width, DEPLOYED.depth
    normed = 2 * depth * tokens + 1
    stream = {
        (row.operator, row.kind): row.count
        for row in estimate(DEPLOYED, _all(0.5), "full").rows
        if row.part == "stream"
    }
    assert stream == {
        ("norm", "accumulate"): 2 * normed * width,
        ("norm", "mac"): 2 * normed * width,
        ("norm", "scale"): normed,
        ("residual", "accumulate"): 2 * depth * tokens * width,
        ("pool", "accumulate"): (tokens - 1) * width,
    }
    vit = estimate(DEPLOYED.replace(style="vit"), _all(0.5), "full")
    position = [row for row in vit.rows if row.operator == "position"]
    assert [(row.part, row.count) for row in position] == [("stream", tokens * width)]


def test_strict_charges_values_as_macs_and_differences_twice() -> None:
    paper = {row.operator: row for row in estimate(DEPLOYED, _all(0.5)).rows}
    strict = {row.operator: row for row in estimate(DEPLOYED, _all(0.5), "strict").rows}
    assert strict["relation"].energy_mj == 2 * paper["relation"].energy_mj
    assert strict["value"].kind == "mac"
    assert strict["value"].count == paper["value"].count
    assert all(strict[name] == row for name, row in paper.items() if name not in ("relation", "value"))


def test_deployed_charges_integers_by_their_widths() -> None:
    paper = {row.operator: row for row in estimate(DEPLOYED, _all(0.5)).rows}
    made = estimate(DEPLOYED, _all(0.5), "deployed")
    rows = {row.operator: row for row in made.rows}
    kinds = {name: rows[name].kind for name in ("patch embedding", "head", "relation", "value", "qkv")}
    assert list(kinds.values()) == ["product", "product", *["integer_accumulate"] * 3]
    assert (rows["patch embedding"].operands, rows["head"].operands) == ((8, 16), (16, 16))
    assert rows["patch embedding"].count == paper["patch embedding"].count
    assert rows["relation"].count == 2 * DEPLOYED.depth * DEPLOYED.tokens**2 * DEPLOYED.width
    # |q - k| of signed codes is one subtraction too.
    signed = estimate(DEPLOYED.replace(coding=CodingByPoint.all("signed")), _all(0.5), "deployed")
    assert next(row for row in signed.rows if row.operator == "relation") == rows["relation"]
    assert {row.kind for row in made.networks()["dense"] if row.operator in ("patch embedding", "head")} == {"mac"}


def test_a_real_readout_is_multiplied_unless_lenient() -> None:
    real = DEPLOYED.replace(readout="real", weight_bits=32)
    for name, kind, count in (("paper", "mac", 1.0), ("strict", "mac", 1.0), ("lenient", "accumulate", 0.25)):
        row = next(row for row in estimate(real, _all(0.25), name).rows if row.operator == "proj")
        assert (row.kind, row.count) == (kind, count * row.dense)


def test_the_value_path_is_scaled_by_q_k_and_v_in_the_paper_and_by_v_where_spikes_are_delivered() -> None:
    rates = _all(0.5) | {"q": 0.1, "k": 0.2, "v": 0.9}
    for name, activity in (("paper", 0.4), ("synaptic", 0.9)):
        row = next(row for row in estimate(DEPLOYED, rates, name).rows if row.operator == "value")
        assert row.activity == pytest.approx(activity)


def test_products_of_codes_cost_as_those_of_the_quantized_rival() -> None:
    """N^2 D of them in every convention; in gates each a product of the same tree."""
    for convention, costs in (("paper", "45nm"), ("strict", "45nm_int8"), ("gates", "45nm_gates")):
        made = estimate(DEPLOYED.replace(relation="dot"), _all(0.3), convention, costs)
        row, rival = (
            next(row for row in rows if row.operator == "relation")
            for rows in (made.rows, made.networks()["quantized"])
        )
        assert row.kind == ("dot" if convention == "gates" else "product")
        assert (row.kind, row.count, row.cost_pj) == (rival.kind, rival.count, rival.cost_pj)


def test_relations_that_multiply_are_charged_for_it() -> None:
    kinds = (("laplacian", "accumulate"), ("hamming", "accumulate"), ("gaussian", "mac"), ("dot", "product"))
    for relation, kind in kinds:
        rows = estimate(DEPLOYED.replace(relation=relation), _all(0.5)).rows
        assert next(row for row in rows if row.operator == "relation").kind == kind
        assert any(row.operator == "affinity" for row in rows)


def test_on_and_off_neurons_double_the_dense_relation_only() -> None:
    signed = DEPLOYED.replace(coding=CodingByPoint.all("signed"))
    plain = {row.operator: row.count for row in estimate(DEPLOYED, _all(0.5)).rows}
    double = {row.operator: row.count for row in estimate(signed, _all(0.5)).rows}
    assert double.pop("relation") == 2 * plain.pop("relation")
    assert double == plain


@pytest.mark.parametrize("name", CONVENTIONS)
def test_an_unquantized_network_costs_what_its_dense_reference_does(name: str) -> None:
    made = estimate(DEPLOYED.replace(quantize=False, relation="dot", weight_bits=32), {}, name)
    assert made.energy_mj == pytest.approx(made.dense_energy_mj, rel=1e-12)


def test_exact_rows_cost_divisions_and_powers_of_two_nothing() -> None:
    exact, pow2 = (estimate(DEPLOYED.replace(row_scale=scale), _all(0.3)) for scale in ("exact", "pow2"))
    pairs = 3 * 2 * DEPLOYED.tokens**2
    assert exact.energy_mj - pow2.energy_mj == pytest.approx(4.6e-9 * pairs)


def test_memory_is_off_by_default_and_labelled() -> None:
    off = estimate(DEPLOYED, _all(0.5))
    assert off.memory == "off"
    assert not any("memory" in row.operator for row in off.rows)
    body = DEPLOYED.depth * 12 * DEPLOYED.width**2
    ends = (3 * 4 * 4 + 5) * DEPLOYED.width
    once = estimate(DEPLOYED, _all(0.5), memory="once")
    fetched = [row for row in once.rows if row.operator.startswith("memory: ")]
    assert {row.kind for row in fetched} == {"global_byte"}
    assert sum(row.count for row in fetched) == body * 6 / 8 + ends * 4
    dense = [row for row in once.networks()["dense"] if row.operator.startswith("memory: ")]
    assert sum(row.count for row in dense) == (body + ends) * 4
    each = estimate(DEPLOYED, _all(0.5), memory="each")
    fc1 = next(row for row in each.rows if row.operator == "memory: fc1")
    assert fc1.kind == "local_byte"
    assert fc1.count == next(row.count for row in each.rows if row.operator == "fc1") * 6 / 8
    assert each.energy_mj - total_mj(row for row in each.rows if "memory" in row.operator) == pytest.approx(
        off.energy_mj
    )


def test_a_cheaper_table_scales_every_row_by_its_own_cost() -> None:
    at_45, at_7 = (estimate(DEPLOYED, _all(0.5), costs=name) for name in ("45nm", "7nm"))
    for one, other in zip(at_45.rows, at_7.rows, strict=True):
        assert other.count == one.count
        assert other.cost_pj == load_costs("7nm").pj[one.kind]
    assert at_7.energy_mj < at_45.energy_mj


def test_the_dictionary_is_json_and_sums_up() -> None:
    made = json.loads(json.dumps(estimate(DEPLOYED, _all(0.5)).to_dict(), allow_nan=False))
    assert made["energy_mj"] == math.fsum(row["energy_mj"] for row in made["operators"])
    assert made["ratio"] == made["dense_energy_mj"] / made["energy_mj"]
    assert {row["block"] for row in made["blocks"]} == {None, 0, 1, 2}
    assert made["costs"]["costs"]["mac"]["cost"] == 4.6


def test_unknown_names_are_refused() -> None:
    with pytest.raises(LapisError, match="did you mean 'strict'"):
        convention_named("strickt")
    with pytest.raises(LapisError, match="memory='always' is unknown; use off, once, each"):
        estimate(DEPLOYED, _all(0.5), memory="always")  # type: ignore[arg-type]
    with pytest.raises(LapisError, match="block 1 has no activity"):
        estimate(DEPLOYED, Activities({(0, point): 0.5 for point in POINTS}))


SIGNED = DEPLOYED.replace(coding=CodingByPoint.all("signed"), affinity_bits=5)


def test_the_quantized_rival_multiplies_weights_and_codes_of_the_same_widths() -> None:
    made = estimate(SIGNED, _all(0.5))
    rows = {row.operator: row for row in made.networks()["quantized"]}
    dense = {row.operator: row.count for row in made.networks()["dense"]}
    # -7..7 has 4 bits: weights of 6 bits, codes by codes, affinities of 5 bits by codes.
    widths = {"qkv": (6, 4), "relation": (4, 4), "value": (5, 4), "proj": (6, 4), "fc1": (6, 4), "fc2": (6, 4)}
    for operator, operands in widths.items():
        row = rows[operator]
        assert (row.kind, row.count, row.operands) == ("product", dense[operator], operands)
        assert row.cost_pj == pytest.approx(0.2 * operands[0] * operands[1] / 64 + 0.1)
    ours = {row.operator: row for row in made.rows}
    assert all(rows[name] == ours[name] for name in ("patch embedding", "head", "affinity", "row scale"))
    assert rows.keys() == ours.keys()


@given(names, memories, rates_of)
def test_skipping_zeros_scales_every_product_by_the_activity_of_its_code(
    name: str, memory: Any, rates: dict[Point, float]
) -> None:
    made = estimate(SIGNED, rates, name, memory=memory)
    full, fewer = ({row.operator: row for row in made.networks()[rival]} for rival in ("quantized", "skipping"))
    inputs: dict[str, Point] = {
        "qkv": "attention_in", "relation": "q", "value": "v", "proj": "readout", "fc1": "mlp_in", "fc2": "mlp_hidden"
    }  # fmt: skip
    for operator, point in inputs.items():
        assert fewer[operator].count == pytest.approx(rates[point] * full[operator].count)
    rest = full.keys() - inputs.keys() - {f"memory: {operator}" for operator in inputs}
    assert all(fewer[operator] == full[operator] for operator in rest)
    assert made.rival_mj("skipping") <= made.rival_mj("quantized") * (1 + 1e-12)
    everything = estimate(SIGNED, _all(1.0), name, memory=memory)
    assert everything.rival_mj("skipping") == pytest.approx(everything.rival_mj("quantized"))


def test_the_rival_reads_the_same_weights_once() -> None:
    made = estimate(SIGNED, _all(0.5), memory="once").networks()
    fetched = {name: sum(row.count for row in rows if row.operator.startswith("memory")) for name, rows in made.items()}
    assert fetched["lapis"] == fetched["quantized"] == fetched["skipping"] < fetched["dense"]


def test_in_gates_the_rival_multiplies_in_a_tree_and_shares_the_circuits_of_rows() -> None:
    made = estimate(SIGNED, _all(0.5), costs="45nm_gates").networks()
    rival, ours = ({row.operator: row for row in made[name]} for name in ("quantized", "lapis"))
    assert {rival[name].kind for name in ("qkv", "relation", "value", "fc2")} == {"dot"}
    assert all(rival[name] == ours[name] for name in ("affinity", "row sum", "row scale", "patch embedding"))


def test_float_weights_make_the_rival_multiply_floats_and_dense_networks_have_none() -> None:
    floats = estimate(SIGNED.replace(weight_bits=32), _all(0.5)).networks()["quantized"]
    assert {row.kind for row in floats if row.operator in ("qkv", "relation", "value", "fc1")} == {"mac"}
    made = estimate(DEPLOYED.replace(quantize=False, relation="dot", weight_bits=32), {})
    assert set(made.rivals) == {"dense"}
    assert made.summary()["quantized_ratio"] is None
    assert made.latency_steps == 0


def test_latency_is_five_windows_a_block_cut_by_deadlines() -> None:
    assert estimate(DEPLOYED, _all(0.5)).summary()["latency_steps"] == 5 * DEPLOYED.depth * DEPLOYED.window
    early = DEPLOYED.replace(min_code={"mlp_in": (1, 4, 7), "v": 3})
    # q, k and v share a window, which waits for the latest of them.
    assert estimate(early, _all(0.5)).latency_steps == 5 * 3 * 7 - (0 + 3 + 6)
    assert estimate(early.replace(min_code={"qk": 2, "v": 3}), _all(0.5)).latency_steps == 5 * 3 * 7 - 3
