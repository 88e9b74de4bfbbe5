"""The sizes of attention that are timed and whose memory is measured."""

from __future__ import annotations

from dataclasses import dataclass

WINDOW = 15


@dataclass(frozen=True)
class Size:
    """Images, heads, tokens, channels of a head, and the window of the codes."""

    batch: int
    heads: int
    tokens: int
    channels: int
    window: int = WINDOW

    def __str__(self) -> str:
        return f"BH={self.batch * self.heads} N={self.tokens} C={self.channels} T={self.window}"
