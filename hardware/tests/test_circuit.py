"""The circuit of a head computes what the integer model does, and a circuit with a fault is found out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lapis.config import CodingByPoint, LapisConfig, MinCodeByPoint
from lapis.deploy import Network, watch
from lapis.errors import LapisError
from lapis_hardware import tools
from lapis_hardware.folder import FIXED, modules, packed, write_design
from lapis_hardware.head import head_of
from lapis_hardware.rows import rows_of
from lapis_hardware.simulate import FORMS, QUANTITIES, build, compare, lint
from lapis_hardware.verify import check_rows, verify
from tests.networks import Pixels, small_config, small_network

needs_icarus = pytest.mark.skipif(not tools.has("icarus"), reason="icarus is not installed")
needs_verilator = pytest.mark.skipif(not tools.has("verilator"), reason="verilator is not installed")

SIGNED = {"coding": CodingByPoint.all("signed")}
CONFIGS = {
    "unsigned": small_config(),
    "signed": small_config(**SIGNED),
    "deadlines": small_config(**SIGNED, min_code=MinCodeByPoint.all(3)),
    "one step": small_config(window=1, width=10),
    "long window": small_config(**SIGNED, window=20, image_size=12),
    "stored as a table": small_config(relation="reciprocal"),
    "narrow affinities": small_config(**SIGNED, affinity_bits=4),
    "one-bit affinities": small_config(affinity_bits=1),
}


@pytest.fixture(scope="module")
def signed_network() -> tuple[Network, Pixels]:
    return small_network(CONFIGS["signed"])


def design(folder: Path, network: Network, images: Pixels, block: int = 1, head: int = 0) -> int:
    rows = rows_of(network, watch(network, images).trace, block, head)
    write_design(folder, head_of(network, block, head), rows)
    return rows.mass.size


@needs_icarus
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_form_equals_the_integer_model_in_icarus(config: LapisConfig, tmp_path: Path) -> None:
    network, images = small_network(config)
    rows = design(tmp_path, network, images)
    found = compare(build(tmp_path, "icarus"), tmp_path, rows)
    assert {(one.form, one.quantity) for one in found} == {(form, what) for form in FORMS for what in QUANTITIES}
    assert [one for one in found if one.different] == []
    assert all(one.compared == rows * (config.tokens if one.quantity in QUANTITIES[:2] else 1) for one in found)


@needs_verilator
def test_every_head_equals_the_integer_model_in_verilator(
    signed_network: tuple[Network, Pixels], tmp_path: Path
) -> None:
    network, images = signed_network
    heads = network.config.depth * network.config.heads
    rows = heads * network.config.tokens * len(images)
    found = verify(network, images, tmp_path, "verilator", rows)
    assert (found.rows, found.heads, found.different) == (rows, heads, 0)


# A fault in each module: what it says, and what it says instead.
FAULTS = {
    "score_minimum": ("q < k ? q : k", "q <= k ? k : q"),
    "score_difference": ("^ {CODE_BITS{x[CODE_BITS]}}", "^ {CODE_BITS{1'b0}}"),
    "score_temporal": ("query_fired[c] ^ key_fired[c]", "query_fired[c] | key_fired[c]"),
    "affinity_read": ("{1'b0, shifted} + 1'b1", "{1'b0, shifted} + 1'b0"),
    "affinity_by_table": ("distance < nearest", "distance > nearest"),
    "leak_register": ("high ? {1'b1, rest[62:32]} : rest[62:31]", "rest[62:31]"),
    "leak_latch": ("elapsed == distance", "elapsed == distance + 1'b1"),
    "row_sum": ("mass + MASS_BITS'(affinity)", "mass | MASS_BITS'(affinity)"),
    "row_exponent": ("aligned > ROOT", "aligned < ROOT"),
    "value_sum": ("total - EXTRA", "total"),
    "threshold_table": ("scale - SCALE_BITS'(LOWEST_SCALE)", "SCALE_BITS'(0 * scale)"),
    "readout": (">= $signed(threshold_on)", "> $signed(threshold_off)"),
    "sequencer": ("INDEX_BITS'(KEYS - 1)", "INDEX_BITS'(KEYS - 2)"),
}


@needs_icarus
@pytest.mark.parametrize("module", FAULTS)
def test_a_fault_in_any_module_is_found(module: str, signed_network: tuple[Network, Pixels], tmp_path: Path) -> None:
    rows = design(tmp_path, *signed_network)
    file, (right, wrong) = tmp_path / f"{module}.sv", FAULTS[module]
    text = file.read_text()
    assert text.count(right) == 1
    file.write_text(text.replace(right, wrong))
    if module == "sequencer":  # a key that is never stored is never ready
        with pytest.raises(LapisError, match="does not end"):
            compare(build(tmp_path, "icarus"), tmp_path, rows)
    else:
        found = compare(build(tmp_path, "icarus"), tmp_path, rows)
        assert sum(one.different for one in found) > 0


@needs_verilator
@pytest.mark.parametrize("module", [name for name in modules() if not name.startswith("bench")])
def test_every_module_is_clean_under_every_lint(
    module: str, signed_network: tuple[Network, Pixels], tmp_path: Path
) -> None:
    design(tmp_path, *signed_network)
    assert lint(tmp_path, module) == ""


def test_a_module_is_a_file_and_says_what_it_does() -> None:
    for name, text in modules().items():
        assert text.startswith("// ")
        assert text.count("endmodule") == 1
        assert f"module {name} " in text


def test_the_modules_of_a_design_have_the_numbers_of_its_network(
    signed_network: tuple[Network, Pixels], tmp_path: Path
) -> None:
    network, images = signed_network
    design(tmp_path, network, images)
    text = (tmp_path / "attention_head.sv").read_text()
    assert f"CHANNELS = {network.config.head_width}," in text
    assert f"KEYS = {network.config.tokens}," in text
    assert all((tmp_path / f"{name}.sv").read_text() == modules()[name] for name in FIXED)


def test_packed_words_hold_their_channels_from_the_lowest_bits() -> None:
    codes = np.array([[1, -2, 3], [0, 0, -1]])
    words = [int(word, 16) for word in packed(codes, 5)]
    assert [[(word >> (5 * c)) & 31 for c in range(3)] for word in words] == [[1, 30, 3], [0, 0, 31]]


def test_a_network_without_a_circuit_is_refused_with_what_is_possible() -> None:
    with pytest.raises(LapisError, match="delay"):
        head_of(small_network(small_config(style="beit"))[0])


def test_a_head_that_is_not_there_is_refused(signed_network: tuple[Network, Pixels]) -> None:
    with pytest.raises(LapisError, match="use blocks 0 to 1 and heads 0 to 1"):
        head_of(signed_network[0], 2, 0)


def test_more_rows_than_the_images_give_are_refused(signed_network: tuple[Network, Pixels]) -> None:
    network = signed_network[0]
    assert check_rows(network.config.tokens * 4, 1, network) == 1
    with pytest.raises(LapisError, match=f"at most {network.config.tokens * 4} rows"):
        check_rows(network.config.tokens * 4 + 1, 1, network)


def test_a_testbench_that_stops_early_is_no_success(signed_network: tuple[Network, Pixels], tmp_path: Path) -> None:
    if not tools.has("icarus"):
        pytest.skip("icarus is not installed")
    rows = design(tmp_path, *signed_network)
    bench = tmp_path / "bench.sv"
    bench.write_text(bench.read_text().replace("if (&finished) $finish", "$finish"))
    with pytest.raises(LapisError, match="ended before its rows"):
        compare(build(tmp_path, "icarus"), tmp_path, rows)
