"""The code blocks of a page, and what a test does with each.

A `python` or `sh` block is run. A `text` block right behind one that was run is what it printed; `...` stands for
anything. Blocks of other languages are only shown. `tests/docs/pages.py` lists the exceptions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

FENCE = re.compile(r"```(\w*)$")


class PageError(Exception):
    """An exception of `tests/docs/pages.py` fits no block of its page, or several."""


@dataclass(frozen=True)
class Rules:
    """What differs from the usual on one page.

    given: files that the page assumes (`tests/docs/given.py` makes them). needs: packages without which the page is not
    run. add: arguments for `lapis VERB`, to make a long command short. not_run, only_with and numbers_vary name blocks
    by a line in them; not_run says why, only_with names a package without which the block alone is left out.
    """

    given: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    add: dict[str, str] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    only_with: dict[str, str] = field(default_factory=dict)
    numbers_vary: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """One fenced block: where it begins, its language and its text."""

    place: str
    language: str
    text: str


def read_blocks(path: Path, name: str) -> list[Block]:
    """The blocks of the page at `path`; `name` is how errors call it."""
    blocks, inside = [], None
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        fence = FENCE.match(line)
        if inside is None and fence:
            inside = number, fence[1]
        elif inside is not None and line == "```":
            text = "\n".join(lines[inside[0] + 1 : number]) + "\n"
            blocks.append(Block(f"{name}:{inside[0] + 1}", inside[1], text))
            inside = None
    return blocks


def block_with(blocks: list[Block], line: str, name: str) -> Block:
    """The one block that has this line, or a line that begins with it."""
    found = [block for block in blocks if any(one.startswith(line) for one in block.text.splitlines())]
    if len(found) != 1:
        raise PageError(f"{name}: {len(found)} blocks have the line {line!r} of tests/docs/pages.py")
    return found[0]
