"""The exported file gives the integer model's logits and codes, bit for bit, whatever the network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.synthetic import random_network
from lapis import pack
from lapis.assets import find
from lapis.bridges import onnx_tables
from lapis.bridges.onnx_export import INTEGER_LOGITS, LOGITS, Writer, export
from lapis.bridges.onnx_run import LEVELS, onnx_executors, open_session
from lapis.config import CodingByPoint, LapisConfig, MinCodeByPoint
from lapis.convert.verification import verify
from lapis.deploy import arithmetic, integer
from lapis.deploy.leak import leak_factor, leak_table, read
from lapis.deploy.network import Network
from tests.networks import configs, images_for, wide_network

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install 'lapis-snn[onnx]'")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'lapis-snn[onnx]'")

SIGNED = CodingByPoint("signed", "signed", "signed", "signed", "signed", "signed")
UNSIGNED = CodingByPoint("unsigned", "unsigned", "unsigned", "unsigned", "unsigned", "unsigned")


def _agrees(network: Network, batch: int = 2) -> None:
    report = verify(network, onnx_executors(network), [(images_for(network, batch), None)])
    wrong = {one.name: (one.logits_differing, str(one.first)) for one in report.agreements if not one.passed}
    assert wrong == {}
    assert report.agreements[0].codes > 0


@pytest.mark.parametrize("relation", ["laplacian", "table"])
@pytest.mark.parametrize("coding", [SIGNED, UNSIGNED])
def test_every_relation_agrees_at_every_level_and_thread(relation: Any, coding: CodingByPoint) -> None:
    _agrees(wide_network(relation=relation, coding=coding))


def test_relative_positions_and_mean_pooling_agree() -> None:
    _agrees(wide_network(style="beit"))


def test_deadlines_agree() -> None:
    _agrees(wide_network(min_code=MinCodeByPoint(2, 3, (1, 4), 2, 3, (2, 5)), coding=SIGNED))


def test_the_widest_codes_and_weights_do_not_saturate() -> None:
    _agrees(wide_network(window=63, weight_bits=8, coding=SIGNED))


@given(configs(), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_any_network_agrees(config: LapisConfig, seed: int) -> None:
    network = random_network(config, seed)
    images = images_for(network, 3, seed)
    logits, real = open_session(export(network)).run([INTEGER_LOGITS, LOGITS], {"images": images})
    expected = integer.run(network, images)
    np.testing.assert_array_equal(logits, expected)
    np.testing.assert_array_equal(real, network.real_logits(expected))


def test_any_batch_gives_the_same_bits() -> None:
    network = wide_network()
    images, session = images_for(network, 5), open_session(export(network))
    whole = session.run([INTEGER_LOGITS], {"images": images})[0]
    alone = [session.run([INTEGER_LOGITS], {"images": images[i : i + 1]})[0] for i in range(5)]
    np.testing.assert_array_equal(np.concatenate(alone), whole)


def test_the_packaged_model_is_small_and_of_standard_operators() -> None:
    path = find("lapis_tiny.cifar10")
    assert path is not None
    file = export(pack.load(path))
    assert len(file) < 12e6
    model = onnx.load_from_string(file)
    assert {node.domain for node in model.graph.node} == {""}
    assert [entry.domain for entry in model.opset_import] == [""]
    large = [one for one in model.graph.initializer if np.prod(one.dims) > 30_000]
    # The weights of 12 blocks and both bytes of the patches'; and the head and positions are smaller.
    assert len(large) == 12 * 4 + 2
    assert {one.data_type for one in large} == {onnx.TensorProto.INT8, onnx.TensorProto.UINT8}


def test_the_same_network_gives_the_same_bytes() -> None:
    assert export(wide_network()) == export(wide_network())


def test_a_step_that_is_wrong_is_seen_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison itself can fail."""
    right = Writer._mix

    def wrong(self: Writer, affinity: str, v: str) -> str:
        return self.graph.add("Mul", right(self, affinity, v), np.float32(1.5))

    monkeypatch.setattr(Writer, "_mix", wrong)
    network = wide_network()
    report = verify(network, onnx_executors(network), [(images_for(network, 2), None)])
    assert not any(agreement.passed for agreement in report.agreements)
    assert len(report.agreements) == 1 + 2 * len(LEVELS)
    assert report.agreements[0].first is not None
    assert (report.agreements[0].first.block, report.agreements[0].first.point) == (0, "readout")


@given(st.data(), st.integers(1, 63), st.booleans())
@settings(deadline=None)
def test_a_ladder_by_table_equals_its_comparisons(data: st.DataObject, levels: int, falls: bool) -> None:
    floats = st.floats(-1e4, 1e4, width=32)
    rise = np.sort(np.array(data.draw(st.lists(floats, min_size=levels, max_size=levels)), dtype=np.float32))
    fall = np.full(levels, arithmetic.LOWEST)
    if falls:
        fall[: levels // 2] = (rise[0] - np.arange(levels // 2, dtype=np.float32)).astype(np.float32)
    table = onnx_tables.ladder(rise, fall, -3, 2)
    near = np.concatenate([rise, fall[fall != arithmetic.LOWEST]])
    beside = [np.nextafter(near, np.float32(side), dtype=np.float32) for side in (-np.inf, np.inf)]
    x = np.concatenate([near, *beside, np.array([-1e30, 0, 1e30], dtype=np.float32)])
    cell = table.cell(x)
    place = (x >= table.edges[:, cell]).sum(axis=0)
    expected = arithmetic.ladder_codes(x, rise, fall, -3, 2)
    np.testing.assert_array_equal(table.codes[cell, place], expected)


@pytest.mark.parametrize("bits", [15, 9, 8, 4, 1])
@pytest.mark.parametrize("coding", [SIGNED, UNSIGNED])
def test_every_width_of_affinities_agrees(bits: int, coding: CodingByPoint) -> None:
    _agrees(wide_network(affinity_bits=bits, coding=coding))


@pytest.mark.parametrize("bits", [15, 8, 1])
@pytest.mark.parametrize("tau", [0.02, 0.5, 3.0, 40.0, 1e5])
def test_mantissas_of_16_bits_and_near_exponents_equal_the_leak(tau: float, bits: int) -> None:
    us, es = leak_table(*leak_factor([tau]), 400)
    mantissa, exponent = onnx_tables.affinity_parts(us, es)
    nearest, distance = np.triu_indices(400)
    behind = np.minimum(exponent[0, distance] - exponent[0, nearest], onnx_tables.VANISHED)
    halved = np.exp2(bits - 16 - behind)
    seen = np.minimum(np.floor(mantissa[0, distance] * halved + np.float32(0.5)), (1 << bits) - 1)
    np.testing.assert_array_equal(seen, read(us[0, distance], es[0, distance], es[0, nearest], bits))


def test_codes_are_as_far_apart_as_their_thermometers() -> None:
    rows = onnx_tables.thermometer(30).astype(np.int64)
    codes = np.arange(31)
    np.testing.assert_array_equal((30 - rows @ rows.T) // 2, np.abs(codes[:, None] - codes))


@pytest.mark.parametrize(("bits", "last"), [(15, 32), (1, 17)])
def test_masses_are_halved_as_often_as_the_definition_says(bits: int, last: int) -> None:
    edges = onnx_tables.mass_edges(65538, bits).tolist()
    assert len(edges) == last - bits
    for k, edge in enumerate(edges, start=bits):
        assert edge * edge >= 1 << (2 * k - 1) > (edge - 1) * (edge - 1)
