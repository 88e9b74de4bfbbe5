"""The file without 64-bit types gives the integer model's logits and codes, in OpenVINO and in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapis import pack
from lapis.assets import find
from lapis.bridges import onnx_narrow
from lapis.bridges.onnx_export import INTEGER_LOGITS, LOGITS, export
from lapis.bridges.onnx_narrow import NarrowWriter, export_narrow
from lapis.bridges.onnx_run import open_session
from lapis.bridges.openvino_run import compile_file, openvino_codes, openvino_executors
from lapis.config import ActivationModes, LapisConfig, LeastCodes
from lapis.convert.agreement import Executor, verify
from lapis.deploy import arithmetic, integer
from lapis.deploy.network import Network
from lapis.deploy.synthetic import random_network
from lapis.errors import LapisError
from tests.networks import configs, images_for, small_config, wide_network

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install 'lapis-snn[onnx]'")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'lapis-snn[onnx]'")

SIGNED, UNSIGNED = ActivationModes.all("signed"), ActivationModes.all("unsigned")
LIMIT = arithmetic.STREAM_LIMIT


@pytest.fixture
def openvino() -> None:
    pytest.importorskip("openvino", reason="openvino is not installed: pip install 'lapis-snn[openvino]'")


def _agrees(network: Network, executors: dict[str, Executor]) -> None:
    report = verify(network, executors, [(images_for(network, 2), None)])
    wrong = {one.name: (one.logits_differing, str(one.first)) for one in report.agreements if not one.holds}
    assert wrong == {}
    assert report.agreements[0].codes > 0


NETWORKS = {
    "signed": {"modes": SIGNED},
    "unsigned": {"modes": UNSIGNED, "relation": "laplacian2"},
    "table": {"modes": SIGNED, "relation": "table"},
    "beit": {"modes": SIGNED, "style": "beit", "least_codes": LeastCodes(2, 3, 4, 2, 3, 5)},
    "wide": {"modes": SIGNED, "window": 63, "weight_bits": 8},
}


@pytest.mark.usefixtures("openvino")
@pytest.mark.parametrize("kind", NETWORKS)
def test_every_kind_of_network_agrees_in_openvino(kind: str) -> None:
    network = wide_network(depth=1, **NETWORKS[kind])  # type: ignore[arg-type]
    _agrees(network, {"codes": openvino_codes(network, export_narrow(network, watched=True))})


@pytest.mark.usefixtures("openvino")
def test_every_number_of_threads_and_onnx_runtime_agree() -> None:
    network = random_network(small_config())
    executors = openvino_executors(network)
    assert list(executors) == ["openvino codes", "openvino 1", "openvino 2", "onnx of it"]
    _agrees(network, executors)


@pytest.mark.usefixtures("openvino")
def test_the_packaged_network_agrees_in_openvino() -> None:
    path = find("lapis_tiny_cifar10")
    assert path is not None
    network = pack.load(path)
    _agrees(network, {"codes": openvino_codes(network, export_narrow(network, watched=True))})


@given(configs(), st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_any_network_agrees_in_onnx_runtime(config: LapisConfig, seed: int) -> None:
    network = random_network(config, seed)
    images = images_for(network, 3, seed)
    logits, real = open_session(export_narrow(network)).run([INTEGER_LOGITS, LOGITS], {"images": images})
    expected = integer.run(network, images)
    np.testing.assert_array_equal(logits, expected)
    np.testing.assert_array_equal(real, network.real_logits(expected))


class _Step(NarrowWriter):
    """One step of the writer as a graph of its own."""

    @classmethod
    def norm(cls, network: Network) -> bytes:
        writer = cls(network, watched=False)
        result = writer.graph.call(writer._standardise("images"), "unit")
        shape: list[int | str] = ["batch", "tokens", network.config.width]
        return writer.graph.model({"images": (np.int32, shape)}, {result: (np.float32, shape)}, {})


def _streams(width: int) -> npt.NDArray[np.int32]:
    """Rows of every size, and those where sums are largest, smallest or cancel."""
    generator = np.random.default_rng(width)
    sizes = np.exp2(generator.uniform(0, 26, (2000, 1)))
    rows = np.rint(generator.normal(0, 1, (2000, width)) * sizes + generator.normal(0, 1, (2000, 1)) * sizes)
    signs = np.where(np.arange(width) % 2, -LIMIT, LIMIT - 1)
    one = np.zeros(width)
    one[width // 2] = LIMIT - 1
    special = [np.full(width, -LIMIT), np.full(width, LIMIT - 1), signs, one, np.zeros(width), np.arange(width) % 2]
    return np.asarray(np.clip(np.concatenate([rows, special]), -LIMIT, LIMIT - 1)[None], dtype=np.int32)


@pytest.mark.parametrize("width", [6, 192, 1024])
@pytest.mark.parametrize("where", ["onnxruntime", "openvino"])
def test_norms_in_pairs_of_float32_are_those_of_float64(where: str, width: int, request: pytest.FixtureRequest) -> None:
    network = random_network(small_config(width=width, heads=2))
    file, rows = _Step.norm(network), _streams(width)
    if where == "openvino":
        request.getfixturevalue("openvino")
        found = compile_file(file)({"images": rows})["unit"]
    else:
        found = open_session(file).run(None, {"images": rows})[0]
    np.testing.assert_array_equal(found, arithmetic.standardise(rows, network.eps))


def test_nothing_but_shapes_has_64_bits() -> None:
    model = onnx.shape_inference.infer_shapes(onnx.load_from_string(export_narrow(wide_network(), watched=True)))
    wide = {onnx.TensorProto.INT64, onnx.TensorProto.UINT64, onnx.TensorProto.DOUBLE}
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    values = [one for one in (*model.graph.value_info, *model.graph.output) if one.type.tensor_type.elem_type in wide]
    assert {makers[one.name] for one in values} <= {"Shape", "Slice", "Concat"}
    assert all(len(one.type.tensor_type.shape.dim) == 1 for one in values)
    assert all(np.prod(one.dims) <= 6 for one in model.graph.initializer if one.data_type in wide)
    # The other file has them.
    usual = onnx.shape_inference.infer_shapes(onnx.load_from_string(export(wide_network())))
    assert onnx.TensorProto.DOUBLE in {one.type.tensor_type.elem_type for one in usual.graph.value_info}


def test_networks_whose_sums_need_more_bits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LapisError, match="width=1032 and 5 tokens have sums that 32 bits do not hold"):
        export_narrow(random_network(small_config(width=1032, heads=2)))
    with pytest.raises(LapisError, match="float weights cannot be exported"):
        export_narrow(random_network(small_config(weight_bits=32)))
    monkeypatch.setattr(onnx_narrow, "largest_logit", lambda network: 2.0**31)
    with pytest.raises(LapisError, match=r"may reach 2.15e\+09"):
        export_narrow(wide_network())


@given(st.integers(1, 7), st.lists(st.integers(-(1 << 15), (1 << 15) - 1), min_size=1))
def test_digits_make_up_the_weights(bits: int, weights: list[int]) -> None:
    digits = onnx_narrow._digits(np.array(weights, dtype=np.int16), bits)
    assert all(np.abs(digit).max() <= 1 << (bits - 1) for digit in digits)
    np.testing.assert_array_equal(sum(digit << (bits * place) for place, digit in enumerate(digits)), weights)
