"""One linear layer by its events and densely, at several activities: where the first becomes slower is the break-even.

The engine's rule (docs/engine.md) rests on these times: a layer whose recorded activity is at most the break-even of
the instruction set gets its event-driven form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from lapis.bench.networks import SHAPES
from lapis.bench.runner import ratio_quartiles, take_turns
from lapis.deploy.arithmetic import Codes
from lapis.deploy.synthetic import random_layer
from lapis.runtime.engine import time_layer

ACTIVITIES = (0.1, 0.21, 0.31, 0.39, 0.5, 0.6)
# Runs of which a round keeps the best.
REPEATS = 4


@dataclass(frozen=True)
class EventRow:
    """One layer at one activity; `dense_times_events` is how many times longer the dense form takes."""

    shape: str
    layer: str
    activity: float
    dense_ms: float
    events_ms: float
    dense_times_events: float


def break_even_rows(shape: str, activities: Sequence[float], rounds: int) -> Iterator[EventRow]:
    """The layers of a shape on the tokens of one image, signed codes where a trained network has them."""
    config, generator = SHAPES[shape], np.random.default_rng(0)
    width, hidden, window = config.width, config.hidden, config.window
    layers = {
        "qkv": (3 * width, width, -window),
        "proj": (width, width, -window),
        "fc1": (hidden, width, -window),
        "fc2": (width, hidden, 0),
    }
    for name, (outputs, inputs, low) in layers.items():
        layer = random_layer(config, generator, outputs, inputs, window / 3)
        for activity in activities:
            codes = _codes(generator, (config.tokens, inputs), activity, low, window)
            forms = {
                events: partial(time_layer, layer, codes, low, window, events, REPEATS) for events in (False, True)
            }
            times = take_turns({str(events): call for events, call in forms.items()}, rounds)
            dense, by_events = times["False"], times["True"]
            yield EventRow(
                shape=shape,
                layer=name,
                activity=activity,
                dense_ms=round(float(np.median(dense)) / 1e6, 4),
                events_ms=round(float(np.median(by_events)) / 1e6, 4),
                dense_times_events=round(ratio_quartiles(dense, by_events)[1], 3),
            )


def _codes(generator: np.random.Generator, shape: tuple[int, int], activity: float, low: int, window: int) -> Codes:
    sizes = np.clip(np.abs(generator.normal(0, window / 3, shape)).round(), 1, window)
    signs = generator.choice([-1, 1], shape) if low else 1
    codes: Codes = (sizes * signs * (generator.random(shape) < activity)).astype(np.int8)
    return codes
