"""The report of a fine-tuning in a browser: every figure, a matrix, the worst mistakes with pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapis.report.finetune import FineTuneResults, finetune_facts, write_finetune_page
from lapis.report.page.page import fill, write_html


@pytest.fixture
def results(finetune_results: FineTuneResults) -> FineTuneResults:
    return finetune_results


def test_the_report_shows_every_figure(results: FineTuneResults, tmp_path: Path, open_file: Callable[..., Any]) -> None:
    shown = write_finetune_page(tmp_path / "report.html", results)
    page = open_file(tmp_path / "report.html")
    right, count = shown["accuracy"]["correct"], shown["accuracy"]["images"]
    assert page.locator("#headline dd").all_inner_texts()[:2] == [f"{100 * right / count:.1f} %", "3"]
    assert page.locator("#by-class .pace").count() == 3
    rows = page.locator("#confusion tbody tr").all()
    cells = [[text.replace("·", "0") for text in row.locator(".cell").all_inner_texts()] for row in rows]
    assert np.array(cells, int).tolist() == results.answers.confusion.tolist()
    wrong = count - right
    assert 0 < wrong == page.locator(".answer.wrong").count()
    assert page.evaluate("[...document.querySelectorAll('.answer img')].every((img) => img.naturalWidth === 16)")
    assert page.locator("#energy .ours-dot").count() > 5
    assert page.locator("#made tbody tr").count() == 1
    assert "<b>cat<∕b>" in page.inner_text("#by-class")


def test_the_worst_mistake_comes_first(results: FineTuneResults) -> None:
    mistakes = finetune_facts(results)["mistakes"]
    scores = [mistake["score"] for mistake in mistakes]
    assert scores == sorted(scores, reverse=True)
    assert all(mistake["label"] != mistake["answer"] and mistake["label"] in mistake["file"] for mistake in mistakes)


def test_many_classes_are_listed_and_not_drawn(
    results: FineTuneResults, tmp_path: Path, open_file: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lapis.report.finetune.MATRIX_CLASSES", 2)
    shown = write_finetune_page(tmp_path / "report.html", results)
    assert shown["confusion"] is None
    page = open_file(tmp_path / "report.html")
    assert page.locator("#confusion tbody tr").count() == len(shown["confused"]) > 0


def test_a_network_without_mistakes_says_so(
    results: FineTuneResults, tmp_path: Path, open_file: Callable[..., Any]
) -> None:
    answers = results.answers
    right = replace(
        answers,
        labels=answers.predicted,
        evaluation=replace(answers.evaluation, top1_correct=answers.evaluation.images),
    )
    write_finetune_page(tmp_path / "report.html", replace(results, answers=right))
    page = open_file(tmp_path / "report.html")
    assert page.inner_text("#mistakes-says") == "No held-out image was named wrong."
    assert page.locator(".answer").count() == 0


def test_the_report_fits_a_phone_and_turns_dark(
    results: FineTuneResults, tmp_path: Path, open_file: Callable[..., Any]
) -> None:
    write_finetune_page(tmp_path / "report.html", results)
    page = open_file(tmp_path / "report.html", viewport={"width": 390, "height": 844}, color_scheme="light")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    rows = "[...document.querySelectorAll('#by-class .pace')].every((row) => row.offsetWidth > 300)"
    assert page.evaluate(rows)
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    page.click("#theme")
    assert page.evaluate(ground) != before


def test_ten_classes_with_long_names_fit_a_phone(
    results: FineTuneResults, tmp_path: Path, open_file: Callable[..., Any]
) -> None:
    names = [f"a class with a long name {number}" for number in range(10)]
    data = finetune_facts(results) | {
        "classes": [{"name": name, "images": 2, "right": 1} for name in names],
        "confusion": np.eye(10, dtype=int).tolist(),
        "pictures": [""] * len(finetune_facts(results)["mistakes"]),
        "shown_classes": 40,
    }
    data["mistakes"][0]["file"] = "photos/" + "a_folder_with_a_long_name/" * 3 + "picture.jpeg"
    write_html(tmp_path / "report.html", fill("finetune", "long", data, ("dom.js", "charts.js", "finetune.js")))
    page = open_file(tmp_path / "report.html", viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    host = page.locator(".scroll", has=page.locator("#confusion"))
    assert host.evaluate("(host) => host.scrollWidth <= host.clientWidth")
    assert page.locator("#confusion thead th:visible").all_inner_texts()[1:] == [str(n + 1) for n in range(10)]
