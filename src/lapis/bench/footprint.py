"""The memory of a loaded model in the engine's usual form and in its low-memory form, and what the second costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lapis import models
from lapis.bench.networks import random_images
from lapis.bench.runner import quartiles, ratio_quartiles, take_turns
from lapis.pack import pack
from lapis.preprocess import Pixels
from lapis.runtime.engine import Engine

FORMS = {"usual": False, "low memory": True}


@dataclass(frozen=True)
class FootprintRow:
    """One form of one model on one thread; `times_usual` is its time per image divided by that of the usual form."""

    model: str
    form: str
    file_mb: float
    weights_mb: float
    working_mb: float
    times_file: float
    ms_per_image: float
    times_usual: float


def footprints(model: str, rounds: int) -> list[FootprintRow]:
    """Both forms of a model, loaded together; their runs take turns. The image does not affect the memory."""
    network = models.open(model).network()
    file_bytes, image = len(pack(network)), random_images(network.config, 1)
    engines = {form: Engine(network, low_memory=low) for form, low in FORMS.items()}
    times = take_turns({form: _timed(engine, image) for form, engine in engines.items()}, rounds)
    rows = []
    for form, engine in engines.items():
        weights, working = engine.memory()
        rows.append(
            FootprintRow(
                model=model,
                form=form,
                file_mb=round(file_bytes / 1e6, 3),
                weights_mb=round(weights / 1e6, 3),
                working_mb=round(working / 1e6, 3),
                times_file=round(weights / file_bytes, 3),
                ms_per_image=round(quartiles(times[form])[1] / 1e6, 3),
                times_usual=round(ratio_quartiles(times[form], times["usual"])[1], 3),
            )
        )
    return rows


def _timed(engine: Engine, image: Pixels) -> Callable[[], float]:
    """CPU nanoseconds of one image; a first run brings the weights into the caches."""
    engine.run(image)
    return lambda: float(sum(engine.profile(image).values()))
