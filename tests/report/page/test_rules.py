"""Pages of rules without a leak: they hold the weights that the rule gives, and show them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lapis import pack, relations
from lapis.deploy.network import Network
from lapis.errors import LapisError
from lapis.nn import Mixer, save_network
from lapis.preprocess import Pixels, Preprocess
from lapis.report import explain
from lapis.report.page.evidence import rollout
from lapis.report.page.explain import explain_network
from lapis.report.page.from_model import explain_model
from lapis.report.page.live import LivePicture, render_live, write_live_page
from lapis.report.page.page import SCRIPTS, WEIGHT_LEVELS, fill, payload, round_weights, write_html
from tests.networks import images_for, small_model
from tests.report.conftest import CONFIGS, NAMES

Rules = Callable[..., Any]
# What Python writes of the rollout.
SIX_DIGITS = 2e-5
RECORDED = ["dot", "gaussian", "hamming"]
TABLE = Path(__file__).resolve().parents[3] / "docs/format-vector-table.safetensors"


@pytest.mark.parametrize("name", RECORDED)
def test_the_page_holds_and_shows_the_weights_of_the_rule(
    explain_rule: Rules, open_page: Callable[..., Any], name: str
) -> None:
    explained = explain_rule(name).explained
    assert explained.attention.recorded is not None
    page = open_page(explained)
    assert page.inner_text("#equation") == relations.rule_of(name).equation
    for block, weights in enumerate(explained.attention.recorded):
        assert weights is not None
        steps, integers = round_weights(weights)
        largest = np.abs(weights).max(axis=-1, keepdims=True)
        assert (np.abs(steps[..., None] * integers - weights) <= 0.501 * largest / WEIGHT_LEVELS).all()
        rows = page.evaluate("([b]) => [...Array(Lapis.run.N).keys()].map((i) => Lapis.run.row(b, 1, i).W)", [block])
        assert rows == (integers[1] * steps[1].astype(np.float64)[:, None]).tolist()
        page.evaluate(f"Lapis.page.set({{block: {block}, head: 1, query: 4}})")
        assert "where the patch row 1, column 0 looks" in page.inner_text("#where")
        assert "no exact weights to compute them from" in page.inner_text("#readout-says")


class Passes(Mixer):
    """A rule without weights for pairs."""

    on_codes = False

    def mix(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return v


def test_without_weights_there_is_no_rollout_and_the_page_says_why(
    open_page: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, images = small_model(CONFIGS["unsigned"].replace(relation="gaussian"), seed=3)
    for block in model.blocks:
        monkeypatch.setattr(block.attn, "relation", Passes(model.config))
    explained = explain_model(model, images[1], Preprocess(24), NAMES, evidence=False)
    assert explained.attention.recorded == (None,) * 3
    assert rollout(explained) is None
    page = open_page(explained)
    assert "gives no weights to pairs of tokens" in page.inner_text("#rollout-says")
    assert page.locator("#rollout").is_hidden()
    assert "no weights for pairs" in page.inner_text("#where")
    assert page.inner_text("#nearest-title") == "Keys with the nearest first spikes"


def test_rollout_is_the_product_of_the_recorded_rows(explain_rule: Rules) -> None:
    explained = explain_rule("gaussian").explained
    share = np.eye(explained.config.tokens)[0]
    for weights in reversed(explained.attention.recorded):
        share = (share + share @ (weights / weights.sum(axis=-1, keepdims=True)).mean(axis=0)) / 2
    got = rollout(explained)
    assert got is not None
    np.testing.assert_allclose(got, share, rtol=1e-12)


def test_the_words_of_a_rule_cannot_break_out_of_the_page(
    explain_rule: Rules, open_file: Callable[..., Any], tmp_path: Path
) -> None:
    data = payload(explain_rule("gaussian").explained)
    hostile = "</script><img src=x onerror=alert(1)>"
    data["rule"] = dict.fromkeys(data["rule"], hostile)
    write_html(tmp_path / "page.html", fill("explain", hostile, data, SCRIPTS))
    page = open_file(tmp_path / "page.html")
    page.evaluate("Lapis.ready")
    assert page.inner_text("#equation") == hostile
    assert hostile in page.inner_text("#attention-title")
    assert page.locator("main img[onerror]").count() == 0


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
    write_html(tmp_path / "live.html", render_live(network, TABLE.read_bytes(), "table", [LivePicture(image, "any")]))
    page = open_file(tmp_path / "live.html")
    page.evaluate("Lapis.ready")
    wanted = payload(explain_network(network, image, evidence=False))
    assert page.evaluate("Lapis.run.data.logits") == wanted["logits"]
    np.testing.assert_allclose(page.evaluate("Lapis.run.data.rollout"), wanted["rollout"], rtol=SIX_DIGITS)
    assert page.inner_text("#rule-title") == "The rule table"


def test_a_checkpoint_without_a_spiking_form_is_explained_as_trained_but_not_live(
    explain_rule: Rules, tmp_path: Path
) -> None:
    save_network(tmp_path / "net.safetensors", explain_rule("gaussian", weight_bits=6).source)
    explained = explain(tmp_path / "net.safetensors", "sample:3", evidence=False)
    assert explained.executor.startswith("PyTorch")
    assert all(weights is not None for weights in explained.attention.recorded or (None,))
    with pytest.raises(LapisError, match=r"relation='gaussian' has no spiking form.*without --live"):
        write_live_page(tmp_path / "live.html", tmp_path / "net.safetensors")
