"""The page in a real browser: its arithmetic is the operator's, and hands, keys and eyes can use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lapis.codes import pow2_exponent
from lapis.ops.l1_distance.reference import l1_distance
from lapis.ops.row_scale.reference import exact_rows, pow2_rows, row_exponent
from lapis.report.page import Explained

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
    if explained.delays is not None:
        total += explained.delays[block][relative_offsets(explained.config.grid)].transpose(2, 0, 1)
    return total


@pytest.mark.parametrize("name", ["unsigned", "signed", "relative", "exact rows"])
def test_the_browser_computes_what_the_operator_defines(
    explain_torch: Callable[[str], Any], open_page: Callable[..., Any], name: str
) -> None:
    explained = explain_torch(name).explained
    page = open_page(explained)
    for block in range(explained.config.depth):
        distance = distances(explained, block)
        log_affinity = -distance / explained.tau[block][:, None, None]
        scale = pow2_rows if explained.config.row_scale == "pow2" else exact_rows
        weights, exponents = scale(log_affinity), row_exponent(log_affinity)
        for head in range(explained.config.heads):
            rows = page.evaluate(ROWS, [block, head])
            np.testing.assert_array_equal([row["D"] for row in rows], distance[head])
            np.testing.assert_array_equal([row["k"] for row in rows], exponents[head])
            np.testing.assert_allclose([row["A"] for row in rows], np.exp(log_affinity[head]), rtol=RELATIVE)
            np.testing.assert_allclose([row["W"] for row in rows], weights[head], rtol=RELATIVE)


@pytest.mark.parametrize("name", ["unsigned", "signed", "relative"])
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
    assert page.locator(".class").count() == explained.config.classes
    assert page.locator(".class b").count() == 0
    shares = page.evaluate("Lapis.softmax(Lapis.run.data.logits)")
    expected = np.exp(explained.logits - explained.logits.max())
    np.testing.assert_allclose(shares, expected / expected.sum(), rtol=RELATIVE)


def test_a_click_chooses_the_query_and_everything_follows(page: Any) -> None:
    before = page.inner_html("#latencies")
    page.locator(".patch").nth(2).click()
    assert chosen(page, "query") == [3]
    assert "patch 1, 3" in page.inner_text("#where")
    assert page.inner_text("#query-name") == "patch 1, 3"
    assert page.locator(".patch").nth(2).get_attribute("aria-pressed") == "true"
    assert page.inner_html("#latencies") != before


def test_hovering_shows_a_key_and_leaving_returns_to_the_nearest(page: Any) -> None:
    nearest = page.inner_text("#key-name")
    page.locator(".patch").nth(8).hover()
    assert page.inner_text("#key-name") == "patch 3, 3"
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
    assert page.evaluate("document.activeElement === Lapis.page.patches[4]")
    key = page.evaluate("Lapis.page.key")
    page.keyboard.press("Shift+ArrowDown")
    assert chosen(page, "query", "key") == [5, page.evaluate(f"Lapis.page.neighbour({key}, 'ArrowDown')")]


def test_keys_choose_block_head_and_class_token(page: Any) -> None:
    page.evaluate("Lapis.page.set({block: 1, head: 1})")
    for press, expected in (("]", [2, 1]), ("]", [2, 1]), ("[", [1, 1]), (".", [1, 2]), (",", [1, 1])):
        page.keyboard.press(press)
        assert chosen(page, "block", "head") == expected
    page.keyboard.press("c")
    assert "class token" in page.inner_text("#where")
    page.keyboard.press("ArrowDown")
    assert chosen(page, "query") == [1]


def test_the_atlas_chooses_block_and_head(page: Any) -> None:
    page.get_by_role("button", name="block 2, head 1").click()
    assert chosen(page, "block", "head") == [2, 1]
    assert page.locator('.thumb[aria-pressed="true"]').count() == 1


def test_colours_follow_weight_affinity_and_distance(page: Any) -> None:
    for show, letter in (("affinity", "A"), ("distance", "D"), ("weight", "W")):
        page.locator(f'[data-show="{show}"]').click()
        assert page.inner_text("#scale-low").startswith(letter)
        near = page.evaluate("Lapis.page.ranked()[0]")
        bright = page.evaluate("Lapis.page.shades(Lapis.page.row).shares")
        assert bright[near] == max(bright)


def test_the_raster_shows_exactly_the_spikes_of_the_run(page: Any, explain_deployed: Any) -> None:
    explained = explain_deployed("unsigned").explained
    codes = explained.trace[2, "v"][0]
    page.select_option("#raster-block", "2")
    page.select_option("#raster-point", "v")
    page.select_option("#raster-scope", "all")
    window = explained.config.window
    counts = [int((codes == window - step).sum()) for step in range(window)]
    assert page.get_attribute("#histogram", "aria-label") == f"Spikes a step: {', '.join(map(str, counts))}."
    assert f"{np.count_nonzero(codes):,} of {codes.size:,} neurons fire" in page.inner_text("#raster-says")
    page.locator("#step").fill("10")
    assert f"{sum(counts[:10]):,} have fired before step 10" in page.inner_text("#raster-says")


def test_playing_reaches_the_end_of_the_window(page: Any, explain_deployed: Any) -> None:
    window = explain_deployed("unsigned").explained.config.window
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    page.click("#play")
    page.clock.run_for(3 * STEP_MILLISECONDS)
    assert chosen(page, "step") == [3]
    page.clock.run_for(window * STEP_MILLISECONDS)
    assert chosen(page, "step") == [window]
    assert page.evaluate("Lapis.page.playing") is None


def test_an_activity_cell_opens_its_raster(page: Any) -> None:
    page.get_by_role("button", name="MLP hidden, block 1").click()
    assert chosen(page, "point", "rasterBlock") == ["mlp_hidden", 1]
    assert page.inner_text("#raster-says").startswith("Block 1, MLP hidden")


def test_energy_follows_the_convention(page: Any) -> None:
    data = page.evaluate("Lapis.run.data.energy")
    for number, made in enumerate(data):
        page.select_option("#convention", str(number))
        assert page.inner_text("#convention-says").startswith(f"{made['convention']}: ")
        assert f"{made['ratio']:.1f} times less" in page.inner_text("#energy-says")
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
def test_a_phone_shows_everything_without_sideways_scrolling(
    explain_deployed: Callable[[str], Any], open_page: Callable[..., Any], name: str
) -> None:
    page = open_page(explain_deployed(name).explained, **PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    clipped = page.evaluate("""[...document.querySelectorAll('.chart text')].filter((text) => {
        const box = text.getBoundingClientRect(), host = text.closest('.chart').getBoundingClientRect();
        return box.left < host.left - 1 || box.right > host.right + 1 || box.bottom > host.bottom + 1;
    }).map((text) => text.textContent)""")
    assert clipped == []


def test_touch_chooses_query_and_key(explain_deployed: Callable[[str], Any], open_page: Callable[..., Any]) -> None:
    page = open_page(explain_deployed("unsigned").explained, **PHONE)
    page.locator(".patch").nth(0).tap()
    page.locator('[data-pick="key"]').tap()
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
