"""The console on which commands print their tables."""

from __future__ import annotations

from typing import NoReturn

from rich.console import Console

# In a narrow terminal or a pipe, rich would cut off digits.
TABLE_WIDTH = 110


class TableConsole(Console):
    """Standard output, wide enough for the tables."""

    def __init__(self) -> None:
        # Without markup: a name may hold brackets.
        super().__init__(highlight=False, markup=False, width=max(Console().width, TABLE_WIDTH))

    def on_broken_pipe(self) -> NoReturn:
        """Let `lapis.cli.main` end the command; rich would exit with 1, which means that a check failed."""
        raise BrokenPipeError
