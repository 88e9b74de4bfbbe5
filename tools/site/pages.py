"""Pages of the site that are built and not kept: home, contributing and others from the root, commands, the API."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from tools.commands_page import page as commands_page

ROOT = Path(__file__).resolve().parents[2]
# Files of the root, and the pages that they become.
FROM_ROOT = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)]*)?\)")
# The public packages in the order in which a user meets them.
PUBLIC = ["lapis", "lapis.nn", "lapis.train", "lapis.convert", "lapis.deploy", "lapis.pack", "lapis.ops"]
PUBLIC += ["lapis.energy", "lapis.report"]


def built_pages() -> dict[str, str]:
    """The text of every built page by its path below docs/."""
    pages = {page: from_root((ROOT / file).read_text(encoding="utf-8")) for file, page in FROM_ROOT.items()}
    return {**pages, "commands.md": commands_page(), "api.md": api_page()}


def from_root(text: str) -> str:
    """A file of the root as a page: links lead to pages; a link to a file that is no page becomes its text."""

    def page_link(match: re.Match[str]) -> str:
        mark, words, target, place = match[1], match[2], match[3], match[4] or ""
        if "://" in target:
            return match[0]
        target = FROM_ROOT.get(target, target.removeprefix("docs/"))
        known = target in FROM_ROOT.values() or (ROOT / "docs" / target).is_file()
        return f"{mark}[{words}]({target}{place})" if known else words

    return LINK.sub(page_link, text)


def api_page() -> str:
    """What every public package exports."""
    parts = ["# API\n\nWhat each public package exports. Everything else may change without notice.\n"]
    for name in PUBLIC:
        exported = importlib.import_module(name).__all__
        # A class or function; constants and submodules are shown where they are defined.
        shown = [one for one in exported if callable(getattr(importlib.import_module(name), one, None))]
        parts.append(f"## {name}\n\n" + "\n\n".join(f"::: {name}.{one}" for one in shown) + "\n")
    return "\n".join(parts)
