"""Many predictions of one session: every answer must equal the first, and memory must not grow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lapis.bench.networks import SHAPES, busy_network, random_images
from lapis.bench.processes import peak_memory_bytes, reset_peak_memory
from lapis.runtime import Session

IMAGES, THREADS = 4, 2
WARM_UP = 20
# What the interpreter itself may need meanwhile; losing one image per prediction would be 27 MB in 1,000 predictions.
ALLOWED_KB = 1024
REPORT_EVERY = 1000


@dataclass(frozen=True)
class SoakRow:
    """How many predictions were made, how many were wrong, and how much the peak memory grew."""

    predictions: int
    wrong: int
    growth_kb: int
    allowed_kb: int = ALLOWED_KB

    @property
    def holds(self) -> bool:
        return self.wrong == 0 and self.growth_kb <= self.allowed_kb


def soak(predictions: int, report: Callable[[str], None]) -> SoakRow:
    """Predict one image at a time with the tiny network on two threads."""
    config = SHAPES["tiny"]
    session = Session(busy_network(config), threads=THREADS)
    images = random_images(config, IMAGES)
    expected = session.run(images)
    for _ in range(WARM_UP):
        session.run(images)
    # An earlier, higher peak of this process would hide the growth.
    reset_peak_memory()
    before, wrong = peak_memory_bytes(), 0
    for count in range(predictions):
        index = count % IMAGES
        wrong += not (session.run(images[index : index + 1])[0] == expected[index]).all()
        if (count + 1) % REPORT_EVERY == 0:
            report(f"{count + 1} predictions")
    return SoakRow(predictions, wrong, (peak_memory_bytes() - before) // 1024)
