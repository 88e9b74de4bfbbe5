"""The sizes at which kernels are timed and the memory of attention is measured. Torch is not needed."""

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


# The paper's small model on 16 images; the tiny one in training at 96 pixels; the smallest size that runs everything.
KERNEL_SIZES = {
    "paper": Size(16, 6, 197, 64),
    "train": Size(64, 3, 37, 64),
    "small": Size(2, 2, 17, 16),
}
# Eight images of a base model; then one image and one head with more and more tokens, to show what grows quadratically.
MEMORY_SIZES = (Size(8, 12, 197, 64), *(Size(1, 1, tokens, 64) for tokens in (512, 1024, 2048, 4096)))
