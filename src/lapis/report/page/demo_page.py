"""The report of `lapis demo`: the results of its checks, as one HTML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import lapis
from lapis.energy import Estimate
from lapis.report.checks import Answer, Equality, Speed, Subject, int8_ratio
from lapis.report.page.page import data_url, energy_rows, fill, write_html
from lapis.runtime.accuracy import Evaluation
from lapis.trace import Tally


class Pages(NamedTuple):
    """Files beside the report: the explain page of the first image, and the page for other pictures ("": none)."""

    explain: str
    live: str


@dataclass(frozen=True)
class DemoResults:
    """The results of all checks; `training` describes how the model was trained, if the demo trained it."""

    subject: Subject
    answers: list[Answer]
    equality: Equality
    accuracy: Evaluation
    tally: Tally
    energy: Estimate
    speed: Speed
    machine: str
    seconds: float
    pages: Pages
    training: str = ""


def facts(results: DemoResults) -> dict[str, Any]:
    """The results as a table for JSON, without images."""
    subject, events = results.subject, results.equality.events
    return {
        "version": lapis.__version__,
        "machine": results.machine,
        "model": subject.path.stem,
        "bytes": subject.path.stat().st_size,
        "engine": subject.engine,
        "window": subject.config.window,
        "training": results.training,
        "trained_on": len(subject.network.trained_slice),
        "accuracy": results.accuracy.to_dict(),
        "equality": [{"name": agreement.name, **agreement.to_dict()} for agreement in results.equality.agreements],
        "checks_passed": results.equality.passed,
        "spikes": sum(events.spikes.values()) / events.images,
        "operations": sum(events.operations.values()) / events.images,
        "latency": events.window_steps,
        "activities": results.tally.activities(),
        "measured": results.tally.images,
        "energy": energy_rows(results.energy),
        "int8_ratio": int8_ratio(subject.config, results.tally),
        "speed": {
            "ours_ms": results.speed.ours_ms,
            "rival_ms": results.speed.rival_ms,
            "rival": results.speed.rival,
            "ratio": results.speed.ratio,
        },
        "seconds": results.seconds,
        **results.pages._asdict(),
    }


def write_report(path: Path, results: DemoResults) -> int:
    """Write the report and return its size in bytes."""
    answers = [
        {
            "image": data_url(answer.image),
            "prediction": answer.name,
            "score": answer.score,
            "label": answer.label,
            "right": answer.right,
        }
        for answer in results.answers
    ]
    title = f"Lapis demo · {results.subject.path.stem}"
    data = facts(results) | {"answers": answers}
    return write_html(path, fill("demo", title, data, ("dom.js", "charts.js", "demo.js")))
