"""The code blocks of a page, and the comments that say what a test does with each.

A comment is on the line before its block; readers of the page do not see it.

    <!-- run -->                         run this block
    <!-- run: needs torch -->            run it where torch is installed, else skip the rest of the page
    <!-- run: lapis train --quiet -->    run it, with --quiet added to each of its `lapis train` commands
    <!-- not run: needs a GPU -->        do not run it, for the reason given
    <!-- output -->                      what the block before printed; `...` stands for anything, as in doctest
    <!-- output: numbers vary -->        the same, whatever its numbers
    <!-- not compared: REASON -->        output that is not compared, for the reason given

Several conditions of one `run` are separated by semicolons. `<!-- given: photo.png, runs/mine -->`, anywhere in the
page, names files that the page assumes. Every block has one of these comments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

Action = Literal["run", "not run", "output", "not compared"]
NUMBERS_VARY = "numbers vary"
# A reason says what a block needs or does; a word or two would not.
SHORTEST_REASON = 8

COMMENT = re.compile(r"<!-- ([a-z ]+?)(?:: (.*))? -->")
FENCE = re.compile(r"```(\w*)$")
GIVEN = re.compile(r"<!-- given: (.*) -->")


class PageError(Exception):
    """A page breaks the convention."""


@dataclass(frozen=True)
class Block:
    """One fenced block: where it begins, its language, what is done with it and how."""

    place: str
    language: str
    action: Action
    detail: str
    text: str

    @property
    def needs(self) -> list[str]:
        """The packages without which the block is not run."""
        return [one.removeprefix("needs ") for one in self._conditions() if one.startswith("needs ")]

    @property
    def added(self) -> dict[str, list[str]]:
        """Arguments added to commands: {"train": ["--quiet"]}."""
        words = (one.split() for one in self._conditions() if one.startswith("lapis "))
        return {verb: arguments for _, verb, *arguments in words}

    def _conditions(self) -> list[str]:
        return [one.strip() for one in self.detail.split(";")]


class Page(NamedTuple):
    """The files that a page takes as given, and its blocks in order."""

    given: list[str]
    blocks: list[Block]


def read_page(path: Path, name: str) -> Page:
    """The page at `path`; `name` is how errors call it."""
    text = path.read_text(encoding="utf-8")
    given = [one.strip() for names in GIVEN.findall(text) for one in names.split(",")]
    blocks: list[Block] = []
    lines = text.splitlines()
    inside: int | None = None
    for number, line in enumerate(lines):
        fence = FENCE.match(line)
        if inside is None and fence:
            inside = number
        elif inside is not None and line == "```":
            blocks.append(_block(f"{name}:{inside + 1}", lines, inside, number))
            inside = None
    for before, block in zip([None, *blocks], blocks, strict=False):
        _check(block, before)
    return Page(given, blocks)


def _block(place: str, lines: list[str], start: int, end: int) -> Block:
    fence, comment = FENCE.match(lines[start]), COMMENT.fullmatch(lines[start - 1]) if start else None
    assert fence is not None
    if comment is None or comment[1] not in get_args(Action):
        raise PageError(f"{place}: say above the block what the test does with it; tests/docs/blocks.py lists how")
    return Block(place, fence[1], cast(Action, comment[1]), comment[2] or "", "\n".join(lines[start + 1 : end]) + "\n")


def _check(block: Block, before: Block | None) -> None:
    place, detail = block.place, block.detail
    if block.action in ("not run", "not compared") and len(detail) < SHORTEST_REASON:
        raise PageError(f"{place}: {block.action!r} needs a reason, as in <!-- {block.action}: needs a GPU -->")
    if block.action == "run":
        if block.language not in ("python", "sh"):
            raise PageError(f"{place}: a block that is run is python or sh, not {block.language or 'plain'!r}")
        unknown = [one for one in detail.split(";") if one and not re.match(r" ?(needs \w+|lapis \w+ .+)$", one)]
        if unknown:
            raise PageError(
                f"{place}: {unknown[0]!r} is no condition of a run; use `needs X` or `lapis VERB ARGUMENTS`"
            )
        absent = [verb for verb in block.added if f"lapis {verb} " not in block.text]
        if absent:
            raise PageError(f"{place}: arguments are added to `lapis {absent[0]}`, which the block does not call")
    if block.action == "output" and (before is None or before.action != "run"):
        raise PageError(f"{place}: this output follows no block that is run")
    if block.action == "output" and detail not in ("", NUMBERS_VARY):
        raise PageError(f"{place}: {detail!r} is no kind of output; use `output` or `output: {NUMBERS_VARY}`")
