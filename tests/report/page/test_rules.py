"""Pages of rules without a leak: they hold the weights or gates that the rule gives, and show them."""

from __future__ import annotations

import base64
import csv
import dataclasses
import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from lapis import pack, relations
from lapis.deploy.network import Network
from lapis.errors import LapisError
from lapis.nn import Mixer, Pairwise, save_network
from lapis.nn.pixels import normalise
from lapis.preprocess import Pixels, Preprocess
from lapis.report import explain, figures
from lapis.report.page.explained import Recorded
from lapis.report.page.from_network import explain_network
from lapis.report.page.live import Sample, render_live, write_live_page
from lapis.report.page.page import SCRIPTS, fill, payload, write_html
from lapis.report.page.rollout import rollout
from lapis.report.page.weights import KINDS, rounded
from tests.networks import images_for

Array = npt.NDArray[np.float64]
Rules = Callable[..., Any]
# The step of a row is stored as a float32, so half a step may be missed by this share of the row's largest weight.
STEP_ERROR = 2.0**-23
# The browser adds in another order.
RELATIVE = 1e-12
# What Python writes of the rollout.
SIX_DIGITS = 2e-5
WITHOUT_LEAK = [name for name in relations.names() if relations.rule_of(name).stored != "leak"]
TABLE = Path(__file__).resolve().parents[3] / "docs/format-vector-table.safetensors"

ROWS = """([block, head]) => Array.from({length: Lapis.run.N}, (_, i) => Lapis.run.row(block, head, i))"""


def expected(made: Any) -> list[Recorded]:
    """What the rule of each block gives for the queries, keys and values that the network hands to it."""
    seen: list[tuple[torch.Tensor, ...]] = []
    relations_of = [block.attn.relation for block in made.source.blocks]
    with pytest.MonkeyPatch.context() as patch:
        for relation in relations_of:
            patch.setattr(relation, "mix", _noting(seen, relation.mix))
        made.source.watch(normalise(torch.from_numpy(made.explained.image[None].copy()), Preprocess(24)))
    return [_given(relation, *each) for relation, each in zip(relations_of, seen, strict=True)]


def _noting(seen: list[Any], mix: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*given: torch.Tensor) -> Any:
        seen.append(given)
        return mix(*given)

    return noted


@torch.no_grad()
def _given(relation: Mixer, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Recorded:
    if isinstance(relation, Pairwise):
        return Recorded(weights=relation.weights(q, k)[0].numpy().astype(np.float64))
    gates = relation.gates(q, k, v)
    return Recorded(gates=None if gates is None else gates[0].numpy() == 1)


def in_page(data: dict[str, Any], heads: int, tokens: int) -> tuple[Array, Array]:
    """The weights (L, H, N, N) that a page holds, and their steps (L, H, N, 1)."""
    held = data["weights"]
    parts = (zlib.decompress(base64.b64decode(held[name])) for name in ("steps", "integers"))
    kind = KINDS[0] if held["levels"] == np.iinfo(KINDS[0]).max else KINDS[1]
    steps, integers = (np.frombuffer(part, each) for part, each in zip(parts, ("<f4", kind), strict=True))
    real = steps.astype(np.float64).reshape(-1, heads, tokens, 1)
    return integers.reshape(-1, heads, tokens, tokens) * real, real


def assert_within_a_step(shown: Array, steps: Array, weights: Array) -> None:
    largest = np.abs(weights).max(axis=-1, keepdims=True)
    assert (np.abs(shown - weights) <= steps / 2 + STEP_ERROR * largest).all()


@pytest.mark.parametrize("mode", ["signed", "unsigned", "offset"])
@pytest.mark.parametrize("name", WITHOUT_LEAK)
def test_the_page_holds_what_the_rule_gives(explain_rule: Rules, name: str, mode: str) -> None:
    made = explain_rule(name, mode)
    explained, wanted = made.explained, expected(made)
    assert explained.recorded is not None
    for found, given in zip(explained.recorded, wanted, strict=True):
        for part, same in zip(found, given, strict=True):
            assert (part is None) == (same is None)
            assert part is None or (part == same).all()
    data = payload(explained)
    weights = {block: each.weights for block, each in enumerate(wanted) if each.weights is not None}
    assert (data["weights"] is None) == (not weights)
    if weights:
        assert data["weights"]["weighing"] == data["weights"]["blocks"] == list(weights)
        assert data["weights"]["signed"] == any((each < 0).any() for each in weights.values())
        assert_within_a_step(*in_page(data, 3, explained.config.tokens), np.stack(list(weights.values())))
    gates = {str(block): each.gates for block, each in enumerate(wanted) if each.gates is not None}
    assert {block: [list(map(int, head)) for head in each["open"]] for block, each in data["gates"].items()} == {
        block: each.reshape(3, -1).astype(int).tolist() for block, each in gates.items()
    }


def test_rules_of_every_kind_are_among_them(explain_rule: Rules) -> None:
    kinds = {
        (each.weights is not None, each.gates is not None)
        for name in WITHOUT_LEAK
        for each in explain_rule(name).explained.recorded or ()
    }
    assert kinds == {(True, False), (False, True), (False, False)}
    assert payload(explain_rule("esdsa").explained)["weights"]["signed"]


@pytest.mark.parametrize("name", WITHOUT_LEAK)
def test_the_browser_shows_the_weights_of_the_rule(
    explain_rule: Rules, open_page: Callable[..., Any], name: str
) -> None:
    explained = explain_rule(name).explained
    page, rule = open_page(explained), relations.rule_of(name)
    assert page.inner_text("#equation") == rule.equation
    assert f"Rule of {rule.system}" in page.inner_text("#origin")
    assert ("need not sum to one" in page.inner_text("#membrane-says")) == (
        rollout(explained) is not None and not rule.normalised
    )
    assert explained.recorded is not None
    for block, each in enumerate(explained.recorded):
        page.evaluate(f"Lapis.page.set({{block: {block}, head: 1, query: 4}})")
        rows = page.evaluate(ROWS, [block, 1])
        if each.weights is None:
            assert all("W" not in row for row in rows)
            assert "Keys with the nearest first spikes" in page.inner_text("#nearest-title")
            assert "no weights" in page.inner_text("#where") or "tokens pass" in page.inner_text("#where")
            continue
        steps, integers = rounded(each.weights, KINDS[0])
        assert [row["W"] for row in rows] == (integers[1] * steps[1].astype(np.float64)[:, None]).tolist()
        assert "where the patch row 1, column 0 looks" in page.inner_text("#where")
        assert page.evaluate("Lapis.page.mapRow.W") == rows[4]["W"]


@pytest.mark.parametrize("name", WITHOUT_LEAK)
def test_the_readout_follows_from_the_weights_of_the_page(
    explain_rule: Rules, open_page: Callable[..., Any], name: str
) -> None:
    explained = explain_rule(name).explained
    page = open_page(explained)
    equal, codes = 0, 0
    for block in range(explained.config.depth):
        for head in range(3):
            found = page.evaluate(
                """([block, head]) => Array.from({length: Lapis.run.N}, (_, i) =>
                    Lapis.run.readout(block, head, i, Lapis.run.row(block, head, i)).equal)""",
                [block, head],
            )
            weighs = explained.recorded is not None and explained.recorded[block].weights is not None
            assert all((each is not None) == weighs for each in found)
            equal, codes = equal + sum(each or 0 for each in found), codes + 7 * len(found) * weighs
    # A rounded weight may move a code that lies on a threshold, here and there one.
    assert equal >= 0.99 * codes


def test_weights_below_zero_have_colours_and_ranks_of_their_own(
    explain_rule: Rules, open_page: Callable[..., Any]
) -> None:
    page = open_page(explain_rule("esdsa").explained)
    page.evaluate("Lapis.page.set({block: 1, head: 2, query: 3})")
    weights, shares = page.evaluate("[Lapis.page.mapRow.W, Lapis.page.lens.shades(Lapis.page.mapRow).shares]")
    assert min(weights) < 0 < max(weights)
    most = max(abs(w) for w in weights[1:])
    np.testing.assert_allclose(shares, np.array(weights) / most, rtol=RELATIVE)
    sizes = [abs(weights[j]) for j in page.evaluate("Lapis.page.ranked()")]
    assert sizes == sorted(sizes, reverse=True)
    assert "orange subtracts it" in page.inner_text("#map-says")
    assert page.inner_text("#nearest-title") == "Keys with the largest weights, by size"
    drawn = page.locator("#membrane .bar.minus").count()
    assert drawn == sum(w < 0 for w in weights)


def test_a_gate_of_tokens_is_drawn_on_the_map(explain_rule: Rules, open_page: Callable[..., Any]) -> None:
    explained = explain_rule("qkformer").explained
    page = open_page(explained)
    page.evaluate("Lapis.page.set({block: 0})")
    assert explained.recorded is not None
    gates = explained.recorded[0].gates
    assert gates is not None
    np.testing.assert_allclose(page.evaluate("Lapis.page.mapRow.G"), gates[:, :, 0].mean(axis=0), rtol=RELATIVE)
    with page.expect_download() as download:
        page.click("#map-csv")
    saved = list(csv.DictReader(io.StringIO(download.value.path().read_text(encoding="utf-8"))))
    assert [float(row["passes"]) for row in saved] == page.evaluate("Lapis.page.mapRow.G")
    assert "weight" not in saved[0]
    assert "Blocks 0 count" not in page.inner_text("#rollout-says")
    assert "Block 0 counts as if every token kept to itself." in page.inner_text("#rollout-says")


def test_a_gate_of_channels_is_drawn_in_its_panel(explain_rule: Rules, open_page: Callable[..., Any]) -> None:
    explained = explain_rule("sdsa").explained
    page = open_page(explained)
    page.evaluate("Lapis.page.set({block: 2, head: 1})")
    assert explained.recorded is not None
    gates = explained.recorded[2].gates
    assert gates is not None
    passes = int(gates[1].sum())
    assert f"{passes} of 14 channels pass in head 1" in page.inner_text("#membrane-says")
    assert page.locator("#membrane .bar:not(.later)").count() == passes
    assert page.locator("#membrane .bar").count() == 14


@pytest.mark.parametrize("name", ["sdsa", "statten"])
def test_without_weights_there_is_no_rollout_and_the_page_says_why(
    explain_rule: Rules, open_page: Callable[..., Any], name: str
) -> None:
    explained = explain_rule(name).explained
    assert rollout(explained) is None
    page = open_page(explained)
    assert "gives no weights to pairs of tokens" in page.inner_text("#rollout-says")
    assert page.locator("#rollout").is_hidden()
    assert page.locator("#rollout-svg").is_hidden()


@pytest.mark.parametrize("name", ["statten", "gaussian"])
def test_a_network_that_averages_patches_opens_on_a_patch(explain_rule: Rules, open_page: Any, name: str) -> None:
    explained = explain_rule(name, mean_pool=True).explained
    page, shares = open_page(explained), rollout(explained)
    best = 1 if shares is None else 1 + int(shares[1:].argmax())
    assert page.evaluate("Lapis.page.state.query") == best


def test_a_rule_with_relative_positions_keeps_them_in_its_weights(explain_rule: Rules, open_page: Any) -> None:
    made = explain_rule("gaussian", "offset", style="beit")
    explained = made.explained
    assert explained.delays is None
    assert explained.recorded is not None
    for found, given in zip(explained.recorded, expected(made), strict=True):
        assert (found.weights == given.weights).all()
    assert "delay" not in open_page(explained).inner_text("#distance-sum")


@pytest.mark.parametrize("name", ["esdsa", "ssa", "qkformer"])
def test_rollout_takes_the_sizes_of_weights(explain_rule: Rules, name: str) -> None:
    explained = explain_rule(name).explained
    tokens, share = explained.config.tokens, np.eye(explained.config.tokens)[0]
    for each in reversed(explained.recorded or ()):
        moved = np.zeros(tokens)
        for i in range(tokens):
            for head in range(3):
                sizes = np.eye(tokens)[i] if each.weights is None else np.abs(each.weights[head, i])
                sizes = sizes if sizes.any() else np.eye(tokens)[i]
                moved += share[i] * sizes / sizes.sum() / 3
        share = (share + moved) / 2
    found = rollout(explained)
    assert found is not None
    np.testing.assert_allclose(found, share, rtol=RELATIVE)
    np.testing.assert_allclose(found.sum(), 1, rtol=RELATIVE)


def test_figures_show_the_weights_of_any_rule(explain_rule: Rules) -> None:
    explained = explain_rule("esdsa").explained
    assert explained.recorded is not None
    weights = explained.recorded[1].weights
    assert weights is not None
    assert (figures.row_weights(explained, 1, 2, 3) == weights[2, 3]).all()
    assert len(figures.attention(explained, 1, 2, 3).axes) == 3
    with pytest.raises(LapisError, match="gives no weights to pairs of tokens in block 0"):
        figures.attention(explain_rule("qkformer").explained, 0, 0, 0)


def test_weights_are_rounded_more_before_spikes_are_left_out(explain_rule: Rules) -> None:
    explained = explain_rule("eco").explained
    whole = payload(explained)
    size = len(whole["codes"]) + len(whole["weights"]["integers"]) + len(whole["weights"]["steps"])
    rough = payload(explained, limit=size - 200)
    assert rough["weights"]["levels"] == 127
    assert rough["points"] == whole["points"]
    weights = np.stack([each.weights for each in explained.recorded or () if each.weights is not None])
    assert_within_a_step(*in_page(rough, 3, explained.config.tokens), weights)
    least = payload(explained, limit=1)
    assert least["blocks"] == least["weights"]["blocks"] == [0, 2]
    assert least["weights"]["weighing"] == [0, 1, 2]


def test_the_words_of_a_rule_cannot_break_out_of_the_page(
    explain_rule: Rules, open_file: Callable[..., Any], tmp_path: Path
) -> None:
    data = payload(explain_rule("ssa").explained)
    hostile = "</script><img src=x onerror=alert(1)>"
    data["rule"] = dict.fromkeys(data["rule"], hostile) | {"origin": "adapted"}
    write_html(tmp_path / "page.html", fill("explain", hostile, data, SCRIPTS))
    page = open_file(tmp_path / "page.html")
    page.evaluate("Lapis.ready")
    assert page.inner_text("#equation") == hostile
    assert hostile in page.inner_text("#origin")
    assert hostile in page.inner_text("#attention-title")
    assert page.locator("main img[onerror]").count() == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"recorded": None}, "give one"),
        ({"tau": np.ones((3, 3)), "recorded": None}, "tau belongs to relations that leak"),
        ({"recorded": (Recorded(),)}, "1 blocks were recorded"),
        ({"recorded": (Recorded(weights=np.zeros((3, 2, 2))),) * 3}, "weights of shape"),
        ({"recorded": (Recorded(weights=np.full((3, 10, 10), np.nan)),) * 3}, "finite"),
        ({"recorded": (Recorded(gates=np.zeros((3, 10, 2), np.bool_)),) * 3}, "gates of shape"),
    ],
)
def test_a_record_that_does_not_fit_its_network_is_refused(
    explain_rule: Rules, change: dict[str, Any], says: str
) -> None:
    with pytest.raises(LapisError, match=says):
        dataclasses.replace(explain_rule("ssa").explained, **change)


@pytest.fixture(scope="module")
def table() -> tuple[Network, Pixels]:
    """A network whose file stores affinities as a table, and an image for it."""
    network = pack.load(TABLE)
    return network, images_for(network, 1)[0]


def test_a_packed_table_is_computed_as_it_is_deployed(table: tuple[Network, Pixels], open_page: Any) -> None:
    network, image = table
    page = open_page(explain_network(network, image, evidence=False))
    equal = page.evaluate(
        """() => Lapis.run.data.blocks.flatMap((block) => [...Array(Lapis.run.H).keys()].flatMap((head) =>
            [...Array(Lapis.run.N).keys()].map((i) =>
                Lapis.run.readout(block, head, i, Lapis.run.row(block, head, i)).equal)))"""
    )
    assert set(equal) == {network.config.head_width}
    assert page.inner_text("#equation") == relations.rule_of("table").equation
    assert "gives the affinity" in page.inner_text("#membrane-says")


def test_a_live_page_of_a_packed_table_shows_what_python_shows(
    table: tuple[Network, Pixels], open_file: Callable[..., Any], tmp_path: Path
) -> None:
    network, image = table
    write_html(tmp_path / "live.html", render_live(network, TABLE.read_bytes(), "table", [Sample(image, "any")]))
    page = open_file(tmp_path / "live.html")
    page.evaluate("Lapis.ready")
    wanted = payload(explain_network(network, image, evidence=False))
    assert page.evaluate("Lapis.run.data.logits") == wanted["logits"]
    np.testing.assert_allclose(page.evaluate("Lapis.run.data.rollout"), wanted["rollout"], rtol=SIX_DIGITS)
    assert page.inner_text("#rule-title") == "The rule table"


def test_a_checkpoint_is_explained_as_it_was_trained(explain_rule: Rules, tmp_path: Path) -> None:
    save_network(tmp_path / "ssa.safetensors", explain_rule("ssa").source)
    explained = explain(tmp_path / "ssa.safetensors", "sample:3", evidence=False)
    assert explained.executor.startswith("PyTorch")
    assert explained.recorded is not None
    assert all(block.weights is not None for block in explained.recorded)


def test_a_live_page_of_a_rule_without_a_spiking_form_is_refused_with_the_way_out(
    explain_rule: Rules, tmp_path: Path
) -> None:
    save_network(tmp_path / "ssa.safetensors", explain_rule("ssa").source)
    with pytest.raises(LapisError, match=r"relation='ssa' has no spiking form.*without --live"):
        write_live_page(tmp_path / "live.html", tmp_path / "ssa.safetensors")
