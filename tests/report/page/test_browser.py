"""The page in a real browser: its arithmetic is the operator's, and hands, keys and eyes can use it."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import pytest

from lapis.codes import pow2_exponent
from lapis.ops.distance.reference import l1_distance
from lapis.ops.row_scale.reference import exact_rows, pow2_rows, row_exponent
from lapis.report.page import Explained
from lapis.report.page.evidence import rollout
from lapis.report.page.page import SCRIPTS, fill, payload, write_html

# numpy's exp and the browser's may differ in the last bit, and sums are taken in another order.
RELATIVE = 1e-12
STEP_MILLISECONDS = 260
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}

ROWS = """([block, head]) => Array.from({length: Lapis.run.N}, (_, i) => {
    const row = Lapis.run.row(block, head, i);
    const readout = Lapis.run.readout(block, head, i, row);
    return {D: row.D, A: row.A, W: row.W, k: row.k, integers: row.integers ?? null, exponent: row.exponent,
            codes: readout && readout.codes, equal: readout && readout.equal};
})"""


def heads(explained: Explained, block: int, point: Any) -> npt.NDArray[np.int64]:
    """(H, N, C)."""
    codes = explained.trace[block, point][0].astype(np.int64)
    split: npt.NDArray[np.int64] = codes.reshape(codes.shape[0], explained.config.heads, -1).swapaxes(0, 1)
    return split


def distances(explained: Explained, block: int) -> npt.NDArray[np.int64]:
    """Written from the latencies, with the delay of every pair looked up in the table of offsets."""
    from lapis.positions import relative_offsets

    total = l1_distance(heads(explained, block, "q"), heads(explained, block, "k")).astype(np.int64)
    if explained.attention.delays is not None:
        total += explained.attention.delays[block][relative_offsets(explained.config.grid)].transpose(2, 0, 1)
    return total


@pytest.mark.parametrize("name", ["unsigned", "signed", "relative", "exact rows"])
def test_the_browser_computes_what_the_operator_defines(
    explain_torch: Callable[[str], Any], open_page: Callable[..., Any], name: str
) -> None:
    explained = explain_torch(name).explained
    page = open_page(explained)
    for block in range(explained.config.depth):
        distance = distances(explained, block)
        log_affinity = -distance / explained.attention.tau[block][:, None, None]
        scale = pow2_rows if explained.config.row_scale == "pow2" else exact_rows
        weights, exponents = scale(log_affinity), row_exponent(log_affinity)
        for head in range(explained.config.heads):
            rows = page.evaluate(ROWS, [block, head])
            np.testing.assert_array_equal([row["D"] for row in rows], distance[head])
            np.testing.assert_array_equal([row["k"] for row in rows], exponents[head])
            np.testing.assert_allclose([row["A"] for row in rows], np.exp(log_affinity[head]), rtol=RELATIVE)
            np.testing.assert_allclose([row["W"] for row in rows], weights[head], rtol=RELATIVE)


@pytest.mark.parametrize("name", ["unsigned", "signed", "narrow", "deadlines", "relative", "table"])
def test_the_browser_reads_out_the_codes_that_the_deployed_network_fired(
    explain_deployed: Callable[[str], Any], open_page: Callable[..., Any], name: str
) -> None:
    made = explain_deployed(name)
    explained, network = made.explained, made.source
    page = open_page(explained)
    for block in range(explained.config.depth):
        distance = distances(explained, block)
        tables = network.tables[block]
        for head in range(explained.config.heads):
            rows = page.evaluate(ROWS, [block, head])
            row = tables.row_exponent[head, distance[head].min(axis=-1, keepdims=True)]
            affinity = tables.table[head, row, distance[head]].astype(np.int64)
            np.testing.assert_array_equal([row["integers"] for row in rows], affinity)
            np.testing.assert_array_equal([row["exponent"] for row in rows], pow2_exponent(affinity.sum(axis=-1)))
            np.testing.assert_array_equal([row["codes"] for row in rows], heads(explained, block, "readout")[head])
            assert {row["equal"] for row in rows} == {explained.config.head_width}


@pytest.fixture
def page(explain_deployed: Callable[[str], Any], open_page: Callable[..., Any]) -> Any:
    return open_page(explain_deployed("unsigned").explained)


def chosen(page: Any, *names: str) -> list[Any]:
    return [page.evaluate(f"Lapis.page.state.{name}") for name in names]


def test_the_prediction_is_the_largest_logit_and_text_stays_text(page: Any, explain_deployed: Any) -> None:
    explained = explain_deployed("unsigned").explained
    assert page.inner_text("#answer") == explained.class_names[int(explained.logits.argmax())]
    assert page.locator("#classes .class").count() == explained.config.classes
    assert page.locator("#classes b").count() == 0
    shares = page.evaluate("Lapis.softmax(Lapis.run.data.logits)")
    expected = np.exp(explained.logits - explained.logits.max())
    np.testing.assert_allclose(shares, expected / expected.sum(), rtol=RELATIVE)


def test_the_page_opens_on_what_decided(page: Any, explain_deployed: Any) -> None:
    explained = explain_deployed("unsigned").explained
    assert chosen(page, "block", "head", "query") == [explained.config.depth - 1, None, 0]
    assert page.inner_text("#where") == "Block 2, mean of 3 heads: where the class token looks"
    assert page.locator("#rollout rect").count() == explained.config.grid**2
    assert page.locator(".proof").count() == min(5, explained.config.classes)
    assert page.inner_text("#evidence-says").startswith("By occlusion: each patch")


def test_a_network_that_averages_patches_opens_on_the_one_that_counts_most(
    explain_deployed: Callable[[str], Any], open_page: Callable[..., Any]
) -> None:
    explained = explain_deployed("relative").explained
    page, shares = open_page(explained), rollout(explained)
    assert shares is not None
    assert chosen(page, "query") == [1 + int(shares[1:].argmax())]
    assert page.inner_text("#evidence-says").startswith("By occlusion: each patch")


def test_the_mean_of_the_heads_is_the_mean_of_their_rows(page: Any) -> None:
    heads, mean = page.evaluate("[[0, 1, 2].map((h) => Lapis.run.row(1, h, 4).W), Lapis.run.meanRow(1, 4).W]")
    np.testing.assert_allclose(mean, np.mean(heads, axis=0), rtol=RELATIVE)


def test_rollout_is_the_product_of_the_rows_that_the_page_shows(
    explain_deployed: Callable[[str], Any], open_page: Callable[..., Any]
) -> None:
    for name in ("unsigned", "relative", "table"):
        explained = explain_deployed(name).explained
        page, tokens = open_page(explained), explained.config.tokens
        rows = np.array(
            page.evaluate(
                """([depth, heads, tokens]) => {
                    const list = (length, make) => Array.from({length}, (_, n) => make(n));
                    return list(depth, (b) => list(heads, (h) => list(tokens, (i) => Lapis.run.row(b, h, i).W)));
                }""",
                [explained.config.depth, explained.config.heads, tokens],
            )
        )
        attention = (rows / rows.sum(axis=-1, keepdims=True)).mean(axis=1)
        mixed = np.linalg.multi_dot([(np.eye(tokens) + block) / 2 for block in attention[::-1]])
        expected = mixed[1:].mean(axis=0) if explained.config.mean_pooling else mixed[0]
        np.testing.assert_allclose(page.evaluate("Lapis.run.data.rollout"), expected, atol=2**-14)


def test_a_click_chooses_the_query_and_everything_follows(page: Any) -> None:
    before = page.inner_html("#latencies")
    page.locator(".patch").nth(2).click()
    assert chosen(page, "query") == [3]
    assert "patch row 0, column 2" in page.inner_text("#where")
    assert page.inner_text("#query-name") == "patch row 0, column 2"
    assert page.locator(".patch").nth(2).get_attribute("aria-pressed") == "true"
    assert page.inner_html("#latencies") != before


def test_hovering_shows_a_key_and_leaving_returns_to_the_nearest(page: Any) -> None:
    nearest = page.inner_text("#key-name")
    page.locator(".patch").nth(8).hover()
    assert page.inner_text("#key-name") == "patch row 2, column 2"
    distance = page.evaluate("Lapis.page.row.D[9]")
    assert page.get_attribute("#membrane", "data-distance") == str(distance)
    assert f"D = {distance}" in page.inner_text("#membrane-says")
    page.mouse.move(2, 2)
    assert page.inner_text("#key-name") == nearest


def test_arrows_move_the_query_and_with_shift_the_key(page: Any) -> None:
    page.locator(".patch").nth(4).click()
    page.mouse.move(2, 2)
    for press, query in (("ArrowRight", 6), ("ArrowRight", 6), ("ArrowUp", 3), ("ArrowLeft", 2), ("ArrowDown", 5)):
        page.keyboard.press(press)
        assert chosen(page, "query") == [query]
    assert page.evaluate("document.activeElement === Lapis.page.lens.patches[4]")
    key = page.evaluate("Lapis.page.key")
    page.keyboard.press("Shift+ArrowDown")
    assert chosen(page, "query", "key") == [5, page.evaluate(f"Lapis.page.lens.neighbour({key}, 'ArrowDown')")]


def test_arrows_outside_the_map_scroll_the_page(page: Any) -> None:
    page.keyboard.press("ArrowDown")
    page.keyboard.press("]")
    assert chosen(page, "query", "block") == [0, 2]


def test_keys_choose_block_head_and_class_token(page: Any) -> None:
    page.evaluate("Lapis.page.set({block: 1, head: 1})")
    page.locator(".patch").nth(4).focus()
    for press, expected in (("]", [2, 1]), ("]", [2, 1]), ("[", [1, 1]), (".", [1, 2]), (",", [1, 1]), (",", [1, 0])):
        page.keyboard.press(press)
        assert chosen(page, "block", "head") == expected
    page.keyboard.press(",")
    assert chosen(page, "head") == [None]
    page.keyboard.press("c")
    assert "class token" in page.inner_text("#where")
    page.keyboard.press("ArrowDown")
    assert chosen(page, "query") == [1]


def test_a_picker_is_one_tab_stop_that_arrows_move_in(page: Any) -> None:
    assert page.locator('#blocks [tabindex="0"]').count() == page.locator('#heads [tabindex="0"]').count() == 1
    page.locator('#blocks [aria-checked="true"]').focus()
    page.keyboard.press("ArrowLeft")
    assert chosen(page, "block") == [1]
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert chosen(page, "block", "head") == [1, 0]
    page.keyboard.press("End")
    assert chosen(page, "head") == [2]
    page.get_by_role("radio", name="mean of all heads").click()
    assert chosen(page, "head") == [None]


def test_with_heads_averaged_the_panels_name_the_head_they_show(page: Any) -> None:
    page.evaluate("Lapis.page.set({block: 1, query: 4, key: 7})")
    weights = page.evaluate("[0, 1, 2].map((h) => Lapis.run.row(1, h, 4).W[7])")
    assert f"These panels show head {int(np.argmax(weights))}," in page.inner_text("#which-head")


def test_the_choice_is_in_the_address_and_comes_back(
    explain_deployed: Callable[[str], Any], open_page: Callable[..., Any]
) -> None:
    page = open_page(explain_deployed("unsigned").explained)
    assert "#" not in page.url
    page.locator(".patch").nth(5).click()
    page.evaluate("Lapis.page.set({block: 0, head: 2, key: 3, show: 'distance', point: 'v', scope: 'all'})")
    expected = chosen(page, "block", "head", "query", "key", "show", "point", "scope")
    page.wait_for_url("**/page.html#block=0&head=2&query=1.2&key=0.2&show=distance&point=v&scope=all")
    page.reload()
    page.evaluate("Lapis.ready")
    assert chosen(page, "block", "head", "query", "key", "show", "point", "scope") == expected
    assert page.locator('[data-choice="show"] [aria-checked="true"]').inner_text().startswith("distance")
    page.evaluate("location.hash = '#block=99&colour=red&query=class'")
    page.wait_for_function("!document.getElementById('address-note').hidden")
    assert chosen(page, "block", "query") == [2, 0]
    assert page.inner_text("#address-note") == (
        "From the address: block=99 does not exist here; there is 0 to 2; colour=red is not a choice of this page."
    )
    page.evaluate("Lapis.page.set({...Lapis.page.opening})")
    page.wait_for_url("**/page.html")


def saved(page: Any, button: str) -> str:
    with page.expect_download() as download:
        page.click(button)
    return str(download.value.path().read_text(encoding="utf-8"))


def test_maps_and_raster_are_saved_as_csv(page: Any, explain_deployed: Any) -> None:
    explained = explain_deployed("unsigned").explained
    rows = list(csv.DictReader(io.StringIO(saved(page, "#map-csv"))))
    weights = page.evaluate("Lapis.page.mapRow.W")
    assert [float(row["weight"]) for row in rows] == weights
    assert [rows[0]["key"], rows[6]["row"], rows[6]["column"]] == ["class token", "1", "2"]
    spikes = list(csv.DictReader(io.StringIO(saved(page, "#raster-csv"))))
    codes = explained.trace[2, "q"][0, 0]
    assert [int(row["code"]) for row in spikes] == codes.tolist()
    steps = [str(explained.config.window - abs(code)) if code else "" for code in codes.tolist()]
    assert [row["step"] for row in spikes] == steps
    decided, shares = list(csv.DictReader(io.StringIO(saved(page, "#decision-csv")))), rollout(explained)
    assert shares is not None
    np.testing.assert_allclose([float(row["rollout"]) for row in decided], shares[1:], rtol=1e-5)
    best = explained.class_names[explained.evidence.classes[0]]
    np.testing.assert_allclose(
        [float(row[best]) for row in decided], explained.evidence.values[0].ravel(), rtol=1e-4, atol=1e-12
    )


def test_maps_and_raster_are_saved_as_svg(page: Any, explain_deployed: Any) -> None:
    patches = explain_deployed("unsigned").explained.config.grid ** 2
    for button, marks in (("#rollout-svg", patches), ("#map-svg", patches + 1), ("#evidence-svg", 4 * patches)):
        text = saved(page, button)
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(root.findall(".//{http://www.w3.org/2000/svg}rect")) == marks
        assert "var(" not in text
    words = saved(page, "#raster-svg")
    assert "step of the window" in words
    assert "channel" in words


def test_the_map_stays_in_sight_on_a_phone_while_its_panels_scroll(
    explain_deployed: Callable[[str], Any], open_page: Callable[..., Any]
) -> None:
    page = open_page(explain_deployed("unsigned").explained, **PHONE)
    places = {"#nearest": "start", "#latencies": "end", "#membrane": "end", "#readout": "end", "#raster": "end"}
    for panel, place in places.items():
        page.evaluate("([id, block]) => document.querySelector(id).scrollIntoView({block})", [panel, place])
        top, bottom, height = page.evaluate("""(() => {
            const box = document.querySelector('.picture').getBoundingClientRect();
            return [box.top, box.bottom, innerHeight];
        })()""")
        assert top >= -1, panel
        assert bottom <= height, panel


def test_no_column_of_a_wide_window_is_left_empty(
    explain_deployed: Callable[[str], Any], open_page: Callable[..., Any]
) -> None:
    page = open_page(explain_deployed("unsigned").explained, viewport={"width": 1280, "height": 900})
    ends = page.evaluate("""['.lens', '.readings'].map(
        (part) => document.querySelector(part).getBoundingClientRect().bottom)""")
    assert abs(ends[0] - ends[1]) < 250


def test_a_map_that_is_nearly_uniform_says_so(page: Any) -> None:
    assert page.evaluate("Lapis.evenness([1, 1, 1, 1])") == pytest.approx(1)
    assert page.evaluate("Lapis.evenness([1, 0, 0, 0])") == pytest.approx(1 / 4)
    flat, peaked = (f"[0, {first}, {', '.join(['0.1'] * 8)}]" for first in ("0.101", "5"))
    for shares, says in ((flat, True), (peaked, False)):
        page.evaluate(f"Lapis.run.data.rollout = {shares}; Lapis.page.decision.draw()")
        assert ("says little" in page.inner_text("#rollout-says")) == says
    page.evaluate("Lapis.run.data.evidence.classes.forEach((each) => each.values.forEach((row) => row.fill(1e-6)))")
    page.evaluate("Lapis.run.data.evidence.classes[0].score = 9; Lapis.page.decision.draw()")
    assert "no part of the image alone moves a score" in page.inner_text("#evidence-says")


def test_a_thousand_classes_can_be_searched(
    explain_deployed: Callable[[str], Any], open_file: Callable[..., Any], tmp_path: Any
) -> None:
    names = [f"thing {number}" for number in range(999)] + ["dragonfly, darning needle, devil's darning needle"]
    logits = [*np.linspace(0, 1, 999), 9.0]
    data = payload(explain_deployed("unsigned").explained) | {"classes": names, "logits": logits}
    write_html(tmp_path / "page.html", fill("explain", "many", data, SCRIPTS))
    page = open_file(tmp_path / "page.html", **PHONE)
    page.evaluate("Lapis.ready")
    assert page.inner_text("#answer") == names[-1]
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.locator("#classes-says").click()
    assert page.locator("#class-list span").count() == 24
    assert page.inner_text("#class-more") == "and 976 less likely ones"
    page.locator("#class-search input").fill("thing 99")
    assert page.locator("#class-list span").first.inner_text().startswith("thing 998 0.0")
    assert "place 2" in page.locator("#class-list span").first.inner_text()
    page.locator("#class-search input").fill("no such thing")
    assert page.inner_text("#class-more") == "No class has this in its name."


def test_below_the_minimum_score_the_answer_is_none_of_these(
    explain_deployed: Callable[[str], Any], open_file: Callable[..., Any], tmp_path: Any
) -> None:
    explained = explain_deployed("unsigned").explained
    for min_score, answer in ((0.99999, "none of these"), (0.01, explained.answer)):
        data = payload(explained) | {"min_score": min_score}
        write_html(tmp_path / "page.html", fill("explain", "sure", data, SCRIPTS))
        page = open_file(tmp_path / "page.html")
        page.evaluate("Lapis.ready")
        assert page.inner_text("#answer") == answer
        assert "none of these" in page.inner_text("#classes-note")


def test_what_the_page_leaves_out_is_said_where_it_is_missed(
    explain_deployed: Callable[[str], Any], open_file: Callable[..., Any], tmp_path: Any
) -> None:
    explained = dataclasses.replace(explain_deployed("unsigned").explained, evidence=None)
    data = payload(explained, limit=1)
    write_html(tmp_path / "page.html", fill("explain", "small", data, SCRIPTS))
    page = open_file(tmp_path / "page.html")
    page.evaluate("Lapis.ready")
    assert "leaves out 1 of 3 blocks and the spikes of" in page.inner_text("#note")
    left_out = page.get_by_role("radio", name="block 1, left out of this page")
    left_out.click(force=True)
    assert chosen(page, "block") == [2]
    assert "leaves out the spikes of value or readout" in page.inner_text("#readout-says")
    assert "was not computed" in page.inner_text("#evidence-says")


def test_colours_follow_weight_affinity_and_distance(page: Any) -> None:
    for show, letter in (("affinity", "A"), ("distance", "D"), ("weight", "W")):
        page.locator(f'[data-value="{show}"]').click()
        assert page.inner_text("#map-key").startswith(letter)
        patches = page.evaluate(f"Lapis.page.mapRow.{letter}.slice(1)")
        shares = page.evaluate("Lapis.page.lens.shades(Lapis.page.mapRow).shares.slice(1)")
        near, far = (min, max) if show == "distance" else (max, min)
        assert shares[patches.index(near(patches))] == 1
        assert shares[patches.index(far(patches))] == 0


def test_the_raster_shows_exactly_the_spikes_of_the_run(page: Any, explain_deployed: Any) -> None:
    explained = explain_deployed("unsigned").explained
    codes = explained.trace[2, "v"][0]
    page.select_option("#raster-block", "2")
    page.select_option("#raster-point", "v")
    page.select_option("#raster-scope", "all")
    window = explained.config.window
    counts = [int((codes == window - step).sum()) for step in range(window)]
    assert page.get_attribute("#histogram", "aria-label") == f"Spikes per step: {', '.join(map(str, counts))}."
    assert f"{np.count_nonzero(codes):,} of {codes.size:,} values spike" in page.inner_text("#raster-says")
    page.locator("#step").fill("10")
    assert f"{sum(counts[:10]):,} spiked before step 10" in page.inner_text("#raster-says")


def test_playing_reaches_the_end_of_the_window(page: Any, explain_deployed: Any) -> None:
    window = explain_deployed("unsigned").explained.config.window
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    page.click("#play")
    page.clock.run_for(3 * STEP_MILLISECONDS)
    assert page.evaluate("Lapis.page.raster.step") == 3
    page.clock.run_for(window * STEP_MILLISECONDS)
    assert page.evaluate("Lapis.page.raster.step") == window
    assert page.evaluate("Lapis.page.raster.playing") is None


def test_an_activity_cell_opens_its_raster(page: Any) -> None:
    page.get_by_role("button", name="MLP hidden, block 1").click()
    assert chosen(page, "point", "rasterBlock") == ["mlp_hidden", 1]
    assert page.inner_text("#raster-says").startswith("Block 1, MLP hidden")


def test_energy_follows_the_convention(page: Any) -> None:
    data = page.evaluate("Lapis.run.data.energy")
    for made in data:
        page.select_option("#convention", made["convention"])
        assert page.inner_text("#convention-says").startswith(f"{made['convention']}: ")
        rival = made["quantized_mj"]
        shown = f"{rival:.3g} mJ" if rival >= 1e-3 else f"{rival / 10 ** math.floor(math.log10(rival)):.1f}·10"
        assert f"plain quantized one takes {shown}" in page.inner_text("#energy-says")
        assert f"{made['latency_steps']} time steps" in page.inner_text("#energy-says")
        assert page.locator("#energy-table tbody tr").count() == len(made["rows"])


def test_light_and_dark_follow_the_reader_and_the_button(
    explain_deployed: Callable[[str], Any], open_page: Callable[..., Any]
) -> None:
    explained = explain_deployed("unsigned").explained
    ground = "getComputedStyle(document.body).backgroundColor"
    seen = {}
    for scheme in ("light", "dark"):
        page = open_page(explained, color_scheme=scheme)
        seen[scheme] = page.evaluate(ground)
    assert seen["light"] != seen["dark"]
    page.click("#theme")
    assert page.evaluate(ground) == seen["light"]
    page.click("#theme")
    assert page.evaluate(ground) == seen["dark"]


@pytest.mark.parametrize("name", ["unsigned", "signed", "relative"])
def test_a_phone_cuts_nothing_off_a_chart(
    explain_deployed: Callable[[str], Any], open_page: Callable[..., Any], name: str
) -> None:
    page = open_page(explain_deployed(name).explained, **PHONE)
    clipped = page.evaluate("""[...document.querySelectorAll('.chart text')].filter((text) => {
        const box = text.getBoundingClientRect(), host = text.closest('.chart').getBoundingClientRect();
        return box.left < host.left - 1 || box.right > host.right + 1 || box.bottom > host.bottom + 1;
    }).map((text) => text.textContent)""")
    assert clipped == []


def test_touch_chooses_query_and_key(explain_deployed: Callable[[str], Any], open_page: Callable[..., Any]) -> None:
    page = open_page(explain_deployed("unsigned").explained, **PHONE)
    page.locator(".patch").nth(0).tap()
    page.locator('[data-value="key"]').tap()
    page.locator(".patch").nth(7).tap()
    assert chosen(page, "query", "key") == [1, 8]
    page.locator("#class-token").tap()
    assert page.inner_text("#key-name") == "class token"


def test_every_control_has_a_name(page: Any) -> None:
    nameless = page.evaluate("""[...document.querySelectorAll('button, select, input')].filter((node) =>
        !(node.getAttribute('aria-label') || node.textContent.trim() || node.closest('label'))
    ).map((node) => node.outerHTML)""")
    assert nameless == []
    silent = page.evaluate("""[...document.querySelectorAll('[role=img]')].filter((node) =>
        !node.hidden && !node.getAttribute('aria-label')).map((n) => n.id)""")
    assert silent == []


def test_text_is_legible_in_both_schemes(explain_deployed: Callable[[str], Any], open_page: Callable[..., Any]) -> None:
    contrast = """() => {
        const linear = (c) => (c <= 10.3 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
        const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
        const says = (node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
        const parse = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
        const ground = (node) => {
            for (; node; node = node.parentElement) {
                const colour = getComputedStyle(node).backgroundColor;
                if (!/, 0\\)|transparent/.test(colour)) return parse(colour);
            }
            return [255, 255, 255];
        };
        const nodes = [...document.querySelectorAll('main *, footer *')];
        return nodes.filter((node) => says(node) && node.checkVisibility()).map((node) => {
            const style = getComputedStyle(node), drawn = node.namespaceURI.endsWith('svg');
            const [a, b] = [light(parse(drawn ? style.fill : style.color)), light(ground(node))];
            return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.textContent.trim().slice(0, 30)];
        }).filter(([ratio]) => ratio < 4.5);
    }"""
    for scheme in ("light", "dark"):
        page = open_page(explain_deployed("unsigned").explained, color_scheme=scheme)
        assert page.evaluate(contrast) == []
