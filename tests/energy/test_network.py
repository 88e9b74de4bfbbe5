"""Other people's networks: every convention prices them, and the ready files give what their papers report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lapis.cli.energy import command
from lapis.energy import CONVENTIONS, estimate, load_spiking_network, side_by_side
from lapis.errors import LapisError

READY = sorted((Path(__file__).parents[2] / "research" / "networks").glob("*.json"))
STEPS, TOKENS, WIDTH = 4, 9, 16
BLOCKS: dict[str, Any] = {
    "blocks": 2,
    "tokens": TOKENS,
    "width": WIDTH,
    "heads": 2,
    "rates": {"qkv": 0.25, "value": 0.5},
}
IMAGE: dict[str, Any] = {"operator": "conv", "part": "patch", "macs": [6, 6, 9, 3, 8], "input": "real"}
FIELDS: dict[str, Any] = {"name": "mine", "time_steps": STEPS, "rate": 0.1, "layers": [IMAGE, BLOCKS]}


def _file(folder: Path, **changes: Any) -> Path:
    path = folder / "network.json"
    path.write_text(json.dumps(FIELDS | changes))
    return path


def _rows(path: Path, convention: str) -> dict[str, tuple[str, float]]:
    return {
        row.operator: (row.kind, row.count) for row in estimate(load_spiking_network(path), convention=convention).rows
    }


def test_four_networks_are_ready_and_give_what_their_papers_report() -> None:
    assert [path.stem for path in READY] == ["max_former_10_768", "qkformer_10_768", "sdt_8_768", "spikformer_8_768"]
    for path in READY:
        network = load_spiking_network(path)
        usual = estimate(network, convention="lenient").energy_mj
        assert f"{usual:.2f}" == f"{next(iter(network.reported.values())):.2f}"
        assert all(len(network.fields[name]) > 40 for name in ("source", "rate_source"))
        assert [made.convention.name for made in side_by_side(network)] == list(CONVENTIONS)


def test_spikes_count_in_every_step_and_real_inputs_once(tmp_path: Path) -> None:
    path = _file(tmp_path)
    square = 2 * TOKENS * WIDTH**2
    for name in ("paper", "lenient", "synaptic"):
        rows: dict[str, Any] = _rows(path, name)
        assert rows["qkv"] == ("accumulate", pytest.approx(0.25 * STEPS * 3 * square))
        assert rows["fc2"] == ("accumulate", pytest.approx(0.1 * STEPS * 4 * square))
        assert rows["value"] == ("accumulate", pytest.approx(0.5 * STEPS * 2 * TOKENS**2 * WIDTH))
        assert rows.get("conv") == (None if name == "synaptic" else ("mac", 6 * 6 * 9 * 3 * 8))
    assert _rows(path, "paper")["relation"][1] == STEPS * 2 * TOKENS**2 * WIDTH
    assert _rows(path, "lenient")["relation"][1] == pytest.approx(0.1 * STEPS * 2 * TOKENS**2 * WIDTH)
    made = estimate(load_spiking_network(path))
    assert made.latency_steps == STEPS
    assert made.dense_energy_mj == pytest.approx(4.6e-9 * (7776 + 12 * square + 4 * TOKENS**2 * WIDTH))


def test_strict_multiplies_sums_of_spikes_and_deployed_adds_integers(tmp_path: Path) -> None:
    path = _file(tmp_path, layers=[IMAGE, BLOCKS | {"input": "integers"}], weight_bits=8)
    kinds = {name: kind for name, (kind, _) in _rows(path, "strict").items()}
    multiplied = {name for name, kind in kinds.items() if kind == "mac"}
    assert multiplied == {"conv", "qkv", "value", "fc1"}
    assert {kind for kind, _ in _rows(path, "deployed").values()} == {"product", "integer_accumulate"}


def test_full_adds_an_update_per_neuron_and_step(tmp_path: Path) -> None:
    rows = _rows(_file(tmp_path, layers=[BLOCKS]), "full")
    neurons = 2 * TOKENS * WIDTH * (3 + 1 + 1 + 4 + 1)
    made = estimate(load_spiking_network(tmp_path / "network.json"), convention="full").rows
    assert "membranes" in rows
    assert sum(row.count for row in made if row.operator == "membranes") == STEPS * neurons


def test_keys_that_meet_values_first_need_a_square_of_the_head(tmp_path: Path) -> None:
    for mixing, macs in (("pairs", TOKENS**2 * WIDTH), ("linear", TOKENS * WIDTH**2 // 2)):
        layers = load_spiking_network(_file(tmp_path, layers=[BLOCKS | {"mixing": mixing}])).layers
        assert {layer.macs for layer in layers if layer.operator in ("relation", "value")} == {2 * macs}
    layers = load_spiking_network(_file(tmp_path, layers=[BLOCKS | {"mixing": "none", "projections": 2}])).layers
    assert [layer.operator for layer in layers] == ["qkv", "proj", "fc1", "fc2"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time_steps": 0}, "time_steps=0 must be a whole number"),
        ({"layers": {}}, "layers={} must be a list"),
        ({"layers": [7]}, r"layers\[0\] holds int; it needs operator, part, macs"),
        ({"layers": [IMAGE | {"macs": 7}]}, "macs=7 must be a list of whole numbers"),
        ({"layers": [IMAGE | {"part": "tail"}]}, "part='tail' must be one of patch"),
        ({"layers": [IMAGE | {"input": "x"}]}, "input='x' must be one of real, spikes"),
        ({"layers": [BLOCKS | {"rates": {"qvk": 0.1}}]}, "did you mean 'qkv'"),
        ({"layers": [BLOCKS | {"rates": {"qkv": 1.1}}]}, "qkv=1.1 must be a share"),
        ({"layers": [BLOCKS | {"width": "8"}]}, "width='8'"),
        ({"tokns": 3}, "unknown field 'tokns'"),
        ({"rate": None}, "rate=None must be a share"),
        ({"reported": [{"mj": 3}]}, r"reported\[0\] holds mj; it needs mj, source"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(LapisError, match=message):
        load_spiking_network(_file(tmp_path, **changes))


def test_a_rate_is_needed_where_spikes_arrive(tmp_path: Path) -> None:
    path = tmp_path / "network.json"
    path.write_text(json.dumps({name: value for name, value in FIELDS.items() if name != "rate"}))
    with pytest.raises(LapisError, match="relation has no firing rate; give it, or one `rate`"):
        load_spiking_network(path)


def test_the_command_shows_every_convention_beside_what_the_paper_reports() -> None:
    done = CliRunner().invoke(command, ["--network", str(READY[1])], catch_exceptions=False)
    assert done.exit_code == 0
    for word in ("QKFormer HST-10-768", "latency: 4 time steps", *CONVENTIONS, "reported: 38.91 mJ"):
        assert word in done.output
    content = json.loads(CliRunner().invoke(command, ["--network", str(READY[1]), "--json"]).output)
    assert list(content["reported"].values()) == [38.91]
    assert {made["convention"] for made in content["conventions"]} == set(CONVENTIONS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lapis_tiny"], "leave out MODEL"),
        (["--activity", "all=0.3"], "leave out MODEL"),
        (["--memory", "once"], "needs the weights"),
        (["--convention", "gates"], "circuits of a Lapis head"),
    ],
)
def test_what_a_network_file_cannot_give_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(LapisError, match=message):
        CliRunner().invoke(command, ["--network", str(READY[0]), *words], catch_exceptions=False)
