"""docs/relations.md and its pictures are what the rules say of themselves."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from lapis import relations
from tools.relations_page import DRAWINGS, PAGE, PICTURES, costs_of, page, picture


def test_the_page_is_what_the_rules_say_now() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "out of date; run: python tools/relations_page.py"


def test_every_relation_has_a_picture_and_every_picture_a_relation() -> None:
    assert set(relations.names()) == DRAWINGS.keys()
    assert {path.stem for path in PICTURES.iterdir()} == DRAWINGS.keys()


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_picture_is_what_its_rule_says_now(name: str) -> None:
    text = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
    assert text == picture(name), "out of date; run: python tools/relations_page.py"
    assert ElementTree.fromstring(text).tag.endswith("svg")


def test_the_costs_of_a_picture_are_those_counted_by_hand() -> None:
    """N = 65, D = 192, H = 3: 2 N^2 D additions for ON and OFF, 10 pJ per pair, half of N^2 D for the values."""
    spent = costs_of("laplacian", "paper", 11)
    assert spent["compare"] == pytest.approx(2 * 65**2 * 192 * 0.9e-3)
    assert spent["weigh"] == pytest.approx(3 * 65**2 * 10e-3)
    assert spent["sum values"] == pytest.approx(0.5 * 65**2 * 192 * 0.9e-3)
