"""The readout that a page computes is the one that the network fired: every packaged network, block and head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lapis import assets
from lapis.report import explain
from lapis.report.page import write_page

# The sentence of the panel for every block and head, on the class token and another; and whether an error is shown.
SENTENCES = """() => {
    const { data, H, N } = Lapis.run;
    const found = new Set();
    for (const block of data.blocks)
        for (let head = 0; head < H; head++)
            for (const query of [0, N >> 1]) {
                Lapis.page.set({ block, head, query });
                const { textContent } = document.getElementById("readout-says");
                const { hidden } = document.getElementById("readout-wrong");
                const said = /\\d+ of \\d+ codes equal what the network fired/.exec(textContent)?.[0];
                found.add(`${said}${hidden ? "" : " ERROR"}`);
            }
    return [...found];
}"""


@pytest.mark.parametrize("name", assets.names())
def test_every_code_of_every_head_is_the_one_that_the_network_fired(
    name: str, open_file: Callable[..., Any], tmp_path: Any
) -> None:
    explained = explain(name, "sample:0", evidence=False)
    write_page(tmp_path / "page.html", explained)
    page = open_file(tmp_path / "page.html")
    page.evaluate("Lapis.ready")
    width = explained.config.head_width
    assert page.evaluate(SENTENCES) == [f"{width} of {width} codes equal what the network fired"]


def test_a_readout_that_differs_is_an_error_on_the_page(
    explain_deployed: Callable[[str], Any], open_page: Callable[..., Any]
) -> None:
    page = open_page(explain_deployed("deadlines").explained)
    width = page.evaluate("Lapis.run.C")
    assert page.locator("#readout-wrong").is_hidden()
    page.evaluate("Lapis.run.head(2, 'readout', 0, Lapis.page.head)[1] ^= 1; Lapis.page.set({ query: 0 })")
    assert f"{width - 1} of {width} codes equal" in page.inner_text("#readout-says")
    assert f"computes 1 of {width} codes otherwise" in page.inner_text("#readout-wrong")
