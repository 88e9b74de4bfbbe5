"""The report of a distillation in a browser: stages, the error of every block, images on which the networks differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from lapis.report.distill import DistillResults, facts, write_distill_page


def test_the_report_shows_every_figure(
    distill_results: DistillResults, tmp_path: Path, open_file: Callable[..., Any]
) -> None:
    shown = write_distill_page(tmp_path / "m.html", distill_results)
    page = open_file(tmp_path / "m.html")
    agreement = shown["agreement"]
    heads = page.locator("#headline dd").all_inner_texts()
    assert heads[:3] == [f"{agreement['top1']:.1f}\u00a0%", "0.310", "63.4\u00a0%"]
    assert page.locator("#stages tbody tr").all_inner_texts()[2].split("\t")[:3] == ["whole", "81.3\u00a0%", "0.31"]
    assert page.locator("#blocks .block-pace").count() == 12
    widths = (
        "[...document.querySelectorAll('#blocks .block-pace')].map((row) => row.querySelectorAll('.pace-bar span'))"
    )
    assert page.evaluate(f"{widths}.every(([before, after]) => before.offsetWidth > after.offsetWidth)")
    assert "Block 11 lost most" in page.inner_text("#blocks-says")
    differ = agreement["images"] - agreement["same"]
    assert 0 < differ == page.locator("#examples .answer").count()
    assert page.evaluate("[...document.querySelectorAll('.answer img')].every((img) => img.naturalWidth === 16)")
    assert "1 image could not be read" in page.inner_text("#foot")


def test_an_example_has_both_answers_with_the_scores_of_both(distill_results: DistillResults) -> None:
    for example in facts(distill_results)["examples"]:
        assert example["answer"] != example["dense_answer"]
        assert example["score"] >= example["score_of_dense_answer"]
        assert example["dense_score"] >= example["dense_score_of_answer"]


def test_networks_that_agree_on_all_images_say_so(
    distill_results: DistillResults, tmp_path: Path, open_file: Callable[..., Any]
) -> None:
    answers = distill_results.answers
    evaluation = replace(answers.evaluation, top1_correct=answers.evaluation.images)
    same = replace(answers, labels=answers.predicted, evaluation=evaluation)
    about = {**distill_results.about, "labelled": None, "unreadable": []}
    write_distill_page(tmp_path / "m.html", replace(distill_results, answers=same, about=about))
    page = open_file(tmp_path / "m.html")
    assert "same answer to all" in page.inner_text("#examples-says")
    assert page.locator(".answer").count() == 0
    assert page.locator("#headline dd").count() == 3
