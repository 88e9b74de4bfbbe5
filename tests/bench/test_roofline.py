"""The calculation of GPU times: it follows its own arithmetic, and says that it is one."""

from __future__ import annotations

import json

import pytest

from lapis.bench.roofline import GPUS, roofline
from lapis.bench.sizes import Size
from lapis.cli import main
from lapis.errors import EXIT_OK


def test_twice_the_images_take_twice_the_time() -> None:
    once, twice = (roofline(Size(batch, 6, 197, 64)) for batch in (64, 128))
    for one, two in zip(once, twice, strict=True):
        assert two.microseconds == pytest.approx(2 * one.microseconds, rel=0.02)


def test_the_gradient_of_cdist_is_bound_by_its_buffer_and_ours_by_instructions() -> None:
    bounds = {(row.gpu, row.work): row.bound_by for row in roofline()}
    for gpu in GPUS:
        assert bounds[gpu.name, "cdist backward"] == "memory"
        assert bounds[gpu.name, "lapis backward"] == "instructions"


def test_the_command_calls_itself_a_calculation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "roofline"]) == EXIT_OK
    assert "a calculation, not a measurement" in capsys.readouterr().out
    assert main(["bench", "roofline", "--json", "--batch", "1"]) == EXIT_OK
    report = json.loads(capsys.readouterr().out)
    assert report["calculated"] is True
    assert len(report["rows"]) == 6 * len(GPUS)
