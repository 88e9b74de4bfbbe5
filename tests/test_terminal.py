"""Foreign text reaches the terminal escaped, and only one function prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapis._util.terminal import echo, escape_control

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "lapis"
# The one function that prints; and processes that answer their parent with a number or a word.
PRINTERS = {"terminal.py", "bench/load.py", "bench/memory.py", "bench/serve.py"}


@given(st.text(st.characters(codec=None)))
def test_printable_text_is_one_line_without_control_characters(text: str) -> None:
    shown = escape_control(text)
    assert shown.isprintable()
    assert escape_control(shown) == shown


def test_letters_of_every_language_stay_as_they_are() -> None:
    assert escape_control("cat, Katze, кошка, 猫, قط") == "cat, Katze, кошка, 猫, قط"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        ("cat\nlapis: PASS: every executor agrees", r"cat\nlapis: PASS: every executor agrees"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\udc80", r"\udc80"),
        ("\x9b31m", r"\x9b31m"),
        ("a\rb", r"a\rb"),
    ],
)
def test_what_could_forge_output_is_written_as_its_escape(text: str, shown: str) -> None:
    assert escape_control(text) == shown


def test_each_argument_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    echo("one\ntwo", "three")
    echo("four\x1b", error=True)
    assert capsys.readouterr() == ("one\\ntwo\nthree\n", "four\\x1b\n")
