"""What reaches the terminal.

Class names come with a model, file names with a folder, and both may hold anything. A control character among them
could retitle the window or forge a line of our output, so every command prints through `echo`.
"""

from __future__ import annotations

import sys


def escape_control(text: object) -> str:
    """Foreign text as one line that any terminal shows as it is: what is not printable is written as its escape."""
    letters = (x if x.isprintable() else x.encode("unicode_escape").decode("ascii") for x in str(text))
    return "".join(letters)


def echo(*lines: object, error: bool = False) -> None:
    """Print each argument as one line on standard output, or on standard error; a line's end inside one is escaped."""
    # By `print` and not by click.echo, which would write across a progress bar.
    print(*map(escape_control, lines), sep="\n", file=sys.stderr if error else sys.stdout, flush=True)
