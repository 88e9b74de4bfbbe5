"""Progress on stderr: a bar with the time left on a terminal, or an occasional line in a log file."""

from __future__ import annotations

import sys
import time
from typing import Any

from lapis._util.terminal import echo, escape_control

# Seconds between lines where there is no terminal.
LINE_SECONDS = 20.0


class Display:
    """One task from 0 to `total`; a quiet display shows nothing."""

    def __init__(self, name: str, total: int, done: int = 0, quiet: bool = False) -> None:
        name = escape_control(name)
        self.name, self.total, self.quiet = name, total, quiet
        self.started, self.first, self.last_line = time.monotonic(), done, 0.0
        # rich takes a while to import, and is not needed where nobody looks.
        self.bar = None if quiet or not sys.stderr.isatty() else _bar()
        self.task = None if self.bar is None else self.bar.add_task(name, total=total, completed=done, note="")

    def __enter__(self) -> Display:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def update(self, done: int, note: str = "") -> None:
        if self.bar is not None:
            self.bar.update(self.task, completed=done, note=note)
            return
        now = time.monotonic()
        if not self.quiet and (now - self.last_line >= LINE_SECONDS or done >= self.total):
            self.last_line = now
            steps = done - self.first
            left = int((now - self.started) / steps * (self.total - done)) if steps else 0
            time_left = f"{left // 3600}:{left % 3600 // 60:02d}:{left % 60:02d} left"
            echo(f"{self.name} {done}/{self.total} {time_left} {note}".rstrip(), error=True)

    def print_line(self, line: str) -> None:
        """Print a separate line above the bar."""
        if self.quiet:
            return
        if self.bar is not None:
            self.bar.console.print(escape_control(line), highlight=False, markup=False)
        else:
            echo(line, error=True)


def _bar() -> Any:
    from rich import progress
    from rich.console import Console

    times = (progress.MofNCompleteColumn(), progress.TimeElapsedColumn(), progress.TimeRemainingColumn())
    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), *times)
    note = progress.TextColumn("{task.fields[note]}")
    # What is printed meanwhile goes above the bar, unless it goes into a file or a pipe.
    return progress.Progress(*columns, note, console=Console(stderr=True), redirect_stdout=sys.stdout.isatty())
