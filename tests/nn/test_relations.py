"""A relation that another package registers is one of the family: it trains, is counted, converted and packed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lapis import relations
from lapis.config import CodingByPoint, LapisConfig
from lapis.convert import TorchExecutor, from_model, to_model
from lapis.deploy import integer
from lapis.deploy.network import check_deployable
from lapis.deploy.simulate import simulate
from lapis.energy import estimate
from lapis.errors import LapisError
from lapis.nn import DistanceRelation, LapisViT, Relation, TableRelation, calibrate, load_network, register_relation
from lapis.nn import relations as modules
from lapis.nn.checkpoint import save_network
from lapis.nn.relations.distance import first_tau
from lapis.ops import l1_distance
from lapis.pack import load, pack, save
from lapis.relations import Rule
from lapis.runtime.engine import Engine
from lapis.train.recipe import Optim
from lapis.train.start import start_network
from lapis.train.step import parameter_groups
from tests.networks import small_config, small_model


class Cauchy(TableRelation):
    """ln A = -ln(1 + D / s_h)."""

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.log_scale = nn.Parameter(torch.zeros(config.heads))

    def log_affinity(self, distance: Tensor) -> Tensor:
        return -torch.log1p(distance / self.log_scale.exp().view(-1, 1, 1))

    @torch.no_grad()
    def init_from_data(self, q: Tensor, k: Tensor, v: Tensor, readout: Tensor) -> None:
        self.log_scale.copy_(first_tau(l1_distance(q, k)).log())
        self.mark_ready()


class Halves(TableRelation):
    """A = 2**-floor(D / 4): every affinity is a power of two."""

    def log_affinity(self, distance: Tensor) -> Tensor:
        return -torch.floor(distance / 4) * float(np.log(2.0))


class Rising(TableRelation):
    """A grows with the distance."""

    def log_affinity(self, distance: Tensor) -> Tensor:
        return distance * 0.1


class ChebyshevRule(Rule):
    """A comparison per pair and channel, priced as a shift."""

    def comparison(self, mixing: Any) -> Any:
        return mixing.fixed("relation", "shift", mixing.channels)


class Chebyshev(DistanceRelation):
    """D = max_c |q - k|."""

    rule: ClassVar[type[Rule]] = ChebyshevRule

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.cdist(q, k, p=float("inf"))


MINE: dict[str, type[Relation]] = {"cauchy": Cauchy, "halves": Halves, "rising": Rising, "chebyshev": Chebyshev}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(relations, "_RULES", dict(relations._RULES))
    monkeypatch.setattr(modules, "_CLASSES", dict(modules._CLASSES))
    for name, relation in MINE.items():
        register_relation(name, relation)


def test_every_relation_that_trains_has_a_module_with_its_rule() -> None:
    assert modules._CLASSES.keys() <= set(relations.names())
    for name, module in modules._CLASSES.items():
        assert type(relations.rule_of(name)) is module.rule


@pytest.mark.parametrize("name", ["cauchy", "halves", "chebyshev"])
def test_a_registered_relation_trains_and_survives_its_file(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = LapisViT(small_config(image_size=16, classes=4, width=24, relation=name, weight_bits=32))
    images, labels = torch.randn(8, 3, 16, 16), torch.arange(8) % 4
    calibrate(model, images)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(40):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]
    save_network(tmp_path / "net.safetensors", model.eval())
    again = load_network(tmp_path / "net.safetensors")
    assert again.config.relation == name
    assert (again(images) == model(images)).all()


@pytest.mark.parametrize("mode", ["unsigned", "signed"])
@pytest.mark.parametrize("name", ["cauchy", "halves"])
def test_every_executor_of_a_table_gives_the_bits_of_the_integer_model(name: str, mode: Any, tmp_path: Path) -> None:
    model, images = small_model(small_config(relation=name, coding=CodingByPoint.all(mode)))
    network = from_model(model)
    save(tmp_path / "net.safetensors", network)
    packed = load(tmp_path / "net.safetensors")
    assert pack(packed) == (tmp_path / "net.safetensors").read_bytes()
    expected = integer.watch(network, images)
    engine = Engine(packed)
    seen = {
        "file": integer.watch(packed, images),
        "spikes": simulate(packed, images)[:2],
        "engine": engine.watch(images),
        "torch": TorchExecutor(packed).watch(torch.from_numpy(images)),
    }
    engine.close()
    for executor, (logits, trace) in seen.items():
        assert (np.asarray(logits) == expected.logits).all(), executor
        assert all((trace[key] == expected.trace[key]).all() for key in expected.trace), executor


def test_the_deployed_table_is_the_trained_affinity() -> None:
    model, _ = small_model(small_config(relation="cauchy"))
    stored = from_model(model).blocks[0].affinity
    assert stored is not None
    relation = model.blocks[0].attn.relation
    assert isinstance(relation, Cauchy)
    scale = relation.log_scale.detach().exp().double().numpy()
    expected = 1 / (1 + np.arange(stored.mantissa.shape[1]) / scale[:, None])
    np.testing.assert_allclose(np.ldexp(stored.mantissa.astype(float), -32 - stored.exponent), expected, rtol=1e-7)


def test_an_affinity_of_powers_of_two_is_stored_without_an_error() -> None:
    stored = from_model(small_model(small_config(relation="halves"))[0]).blocks[0].affinity
    assert stored is not None
    assert (stored.mantissa == 1 << 31).all()
    assert (stored.exponent == np.arange(stored.exponent.shape[1]) // 4 - 1).all()


def test_a_packed_table_runs_where_its_relation_is_unknown(tmp_path: Path) -> None:
    model, images = small_model(small_config(relation="cauchy"))
    network = from_model(model)
    save(tmp_path / "net.safetensors", network)
    np.save(tmp_path / "images.npy", images)
    code = f"""
        import sys, numpy, lapis.pack, lapis.energy
        from lapis.deploy import run
        network = lapis.pack.load(r"{tmp_path / "net.safetensors"}")
        print(run(network, numpy.load(r"{tmp_path / "images.npy"}")).tolist())
        assert network.config.relation == "table" and "torch" not in sys.modules
    """
    printed = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == str(integer.run(network, images).tolist())


def test_a_packed_table_cannot_be_trained_on(tmp_path: Path) -> None:
    network = from_model(small_model(small_config(relation="cauchy"))[0])
    with pytest.raises(LapisError, match="start from the checkpoint that was packed"):
        to_model(network)


def test_what_cannot_be_stored_as_a_table_is_refused_with_the_reason() -> None:
    with pytest.raises(LapisError, match="head 0 rises from distance 0 to 1"):
        from_model(small_model(small_config(relation="rising"))[0])
    with pytest.raises(LapisError, match="position delays of style='beit'; use style='vit'"):
        check_deployable(small_config(relation="cauchy", style="beit"))
    with pytest.raises(LapisError, match="relation='chebyshev' has no spiking form"):
        check_deployable(small_config(relation="chebyshev"))


def test_a_table_with_relative_positions_trains() -> None:
    model = LapisViT(small_config(relation="cauchy", style="beit"))
    calibrate(model, [torch.randn(2, 3, 8, 8)])
    model(torch.randn(2, 3, 8, 8)).square().sum().backward()
    relation = model.blocks[0].attn.relation
    assert isinstance(relation, TableRelation)
    position = relation.position
    assert position is not None
    assert position.table.grad is not None
    assert position.table.grad.any()


def test_the_energy_of_a_relation_is_what_its_rule_says() -> None:
    rates: dict[Any, float] = dict.fromkeys(("attention_in", "q", "k", "v", "readout", "mlp_in", "mlp_hidden"), 0.5)
    config = small_config()
    rows = {
        name: [(row.operator, row.kind, row.count) for row in estimate(config.replace(relation=name), rates).rows]
        for name in ("laplacian", "cauchy", "table", "chebyshev")
    }
    assert rows["cauchy"] == rows["laplacian"] == rows["table"]
    channels = config.depth * config.tokens**2 * config.width
    assert [row for row in rows["chebyshev"] if row[0] == "relation"] == [("relation", "shift", channels)]
    assert [row for row in rows["chebyshev"] if row[0] != "relation"] == [
        row for row in rows["laplacian"] if row[0] != "relation"
    ]


def test_what_a_relation_learns_does_not_decay() -> None:
    model = LapisViT(small_config(relation="cauchy"))
    learned, groups = model.blocks[0].attn.relation.log_scale, parameter_groups(model.named_parameters(), Optim())
    group = next(each for each in groups if any(parameter is learned for parameter in each["params"]))
    assert group["weight_decay"] == 0.0


def test_a_run_starts_from_a_network_with_another_relation(tmp_path: Path) -> None:
    old, _ = small_model(small_config(relation="laplacian"))
    save_network(tmp_path / "old.safetensors", old)
    model = start_network(small_config(relation="cauchy"), str(tmp_path / "old.safetensors"), 0)
    assert (model.blocks[0].attn.qkv.weight == old.blocks[0].attn.qkv.weight).all()
    relation = model.blocks[0].attn.relation
    assert isinstance(relation, Cauchy)
    assert not relation.is_ready
    save_network(tmp_path / "mine.safetensors", small_model(small_config(relation="cauchy"))[0])
    again = start_network(small_config(relation="cauchy"), str(tmp_path / "mine.safetensors"), 0)
    relation = again.blocks[0].attn.relation
    assert isinstance(relation, Cauchy)
    assert relation.is_ready


def test_an_unknown_relation_is_refused_with_all_that_are_known() -> None:
    with pytest.raises(
        LapisError, match=r"relation='cosine' is unknown; use laplacian, dot, .*cauchy.*register_relation"
    ):
        LapisConfig(relation="cosine")
    with pytest.raises(LapisError, match=r"relation=\['dot'\] is unknown"):
        LapisConfig(relation=["dot"])  # type: ignore[arg-type]
    with pytest.raises(LapisError, match="compares codes and needs quantize=True"):
        LapisConfig(relation="cauchy", quantize=False)


@pytest.mark.parametrize(
    ("name", "relation", "words"),
    [
        ("laplacian", Cauchy, "already registered"),
        ("table", Cauchy, "already registered"),
        ("cauchy", Halves, "already registered"),
        ("My Own", Cauchy, "lower-case letters"),
        ("mine", nn.Linear, "subclass of lapis.nn.Relation"),
    ],
)
def test_a_bad_registration_is_refused_and_changes_nothing(name: str, relation: Any, words: str) -> None:
    before = dict(modules._CLASSES)
    with pytest.raises(LapisError, match=words):
        register_relation(name, relation)
    assert before == modules._CLASSES


def test_registering_the_same_class_again_is_allowed() -> None:
    register_relation("cauchy", Cauchy)


def _plugin(folder: Path, body: str) -> None:
    """An installed package that offers the relation `offered` as an entry point."""
    (folder / "offering.py").write_text(body)
    facts = folder / "offering-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: offering\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[lapis.relations]\noffered = offering\n")


def _run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    start = f"import sys; sys.path.insert(0, r'{folder}')\n"
    return subprocess.run([sys.executable, "-c", start + textwrap.dedent(code)], capture_output=True, text=True)


def test_an_installed_package_offers_a_relation_without_an_import(tmp_path: Path) -> None:
    body = """
        from lapis.nn import TableRelation, register_relation
        class Offered(TableRelation):
            def log_affinity(self, distance):
                return -distance / 7
        register_relation("offered", Offered)
    """
    _plugin(tmp_path, textwrap.dedent(body))
    code = """
        from lapis import LapisConfig, relations
        assert "offered" in relations.names() and "offering" not in sys.modules
        assert LapisConfig(relation="offered").relation == "offered" and "offering" in sys.modules
    """
    assert _run(tmp_path, code).stderr == ""


def test_a_package_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    _plugin(tmp_path, "raise RuntimeError('no such device')")
    code = """
        from lapis import LapisConfig, LapisError
        try:
            LapisConfig(relation="offered")
        except LapisError as error:
            print(error)
    """
    assert _run(tmp_path, code).stdout == "relation='offered': offering cannot be imported: no such device\n"
