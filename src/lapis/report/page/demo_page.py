"""The demo's report: the figures of one run of the story, as one HTML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lapis
from lapis.energy import Estimate
from lapis.report.page.page import data_url, energy_rows, fill, write_html
from lapis.report.story import Answer, Equality, Speed, Subject
from lapis.runtime.evaluate import Evaluation
from lapis.trace import Tally


@dataclass(frozen=True)
class Told:
    """Everything that one run of the story found; `training` says how a model that was trained here came to be."""

    subject: Subject
    answers: list[Answer]
    equality: Equality
    accuracy: Evaluation
    tally: Tally
    energy: Estimate
    speed: Speed
    machine: str
    seconds: float
    explain: str
    training: str = ""


def facts(told: Told) -> dict[str, Any]:
    """The figures, for people and machines; no pictures."""
    subject, events = told.subject, told.equality.events
    return {
        "version": lapis.__version__,
        "machine": told.machine,
        "model": subject.path.stem,
        "bytes": subject.path.stat().st_size,
        "engine": subject.engine,
        "window": subject.config.window,
        "training": told.training,
        "accuracy": told.accuracy.to_dict(),
        "equality": [{"name": agreement.name, **agreement.to_dict()} for agreement in told.equality.agreements],
        "promises_hold": told.equality.holds,
        "spikes": sum(events.spikes.values()) / events.images,
        "operations": sum(events.operations.values()) / events.images,
        "latency": events.window_steps,
        "activities": told.tally.activities(),
        "measured": told.tally.images,
        "energy": energy_rows(told.energy),
        "speed": {
            "ours_ms": told.speed.ours_ms,
            "rival_ms": told.speed.rival_ms,
            "rival": told.speed.rival,
            "ratio": told.speed.ratio,
        },
        "seconds": told.seconds,
        "explain": told.explain,
    }


def write_report(path: Path, told: Told) -> int:
    """Write the report and return its size in bytes."""
    answers = [
        {
            "image": data_url(answer.image),
            "prediction": answer.name,
            "score": answer.score,
            "label": answer.label,
            "right": answer.right,
        }
        for answer in told.answers
    ]
    title = f"Lapis demo · {told.subject.path.stem}"
    return write_html(path, fill("demo", title, facts(told) | {"answers": answers}, ("dom.js", "charts.js", "demo.js")))
