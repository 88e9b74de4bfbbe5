"""Keep the counts of the last run of every check of docs/trust.md, and write them into the page.

python -m tools.trust page                      fill the table of the page from the record
python -m tools.trust tests NAME ARGUMENTS...   run pytest, and record how many tests passed, failed and were skipped
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs" / "records" / "trust.json"
PAGE = ROOT / "docs" / "trust.md"
START, END = "<!-- counts -->\n", "<!-- /counts -->"


def read() -> dict[str, dict[str, Any]]:
    """The last run of each check by its name."""
    record: dict[str, dict[str, Any]] = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
    return record


def note(name: str, command: str, counts: dict[str, int]) -> None:
    """Record a run of a check, with the day, the machine and the commit."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    entry = {
        "command": command,
        "day": datetime.date.today().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}",
        "commit": commit.stdout.strip(),
        "counts": counts,
    }
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps({**read(), name: entry}, indent=2, sort_keys=True) + "\n")


def filled(text: str) -> str:
    """The page with the table of the record."""
    rows = [
        f"| {name} | `{entry['command']}` | {_words(entry['counts'])} | {entry['day']}, {entry['commit']} |"
        for name, entry in sorted(read().items())
    ]
    table = "\n".join(["| check | command | counts | day, commit |", "|---|---|---|---|", *rows])
    return re.sub(f"{re.escape(START)}.*?{re.escape(END)}", lambda _: f"{START}{table}\n{END}", text, flags=re.DOTALL)


def _words(counts: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {what}" for what, number in counts.items())


class Counts:
    """A plugin of pytest that counts outcomes."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter({"passed": 0, "failed": 0, "skipped": 0})

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.found[report.outcome] += 1


def main(words: list[str]) -> int:
    if words == ["page"]:
        PAGE.write_text(filled(PAGE.read_text()))
        return 0
    if len(words) > 2 and words[0] == "tests":
        import pytest

        counts = Counts()
        code = int(pytest.main(["-q", *words[2:]], plugins=[counts]))
        kills = {"kills": int(os.environ["LAPIS_KILLS"])} if "LAPIS_KILLS" in os.environ else {}
        note(words[1], f"make {words[1]}", {**counts.found, **kills})
        return code
    raise SystemExit(__doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
