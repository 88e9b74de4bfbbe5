"""A session neither drifts nor grows, and the soak would see it."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from lapis.bench.soak import ALLOWED_KB, SoakRow, soak
from lapis.deploy.arithmetic import Float32
from lapis.runtime import Session
from lapis.runtime.session import ImagesLike

pytestmark = pytest.mark.usefixtures("needs_kernels")


def test_a_short_soak_holds() -> None:
    row = soak(50, lambda line: None)
    assert (row.predictions, row.wrong) == (50, 0)
    assert row.holds


def test_every_thousand_predictions_are_said() -> None:
    lines: list[str] = []
    soak(1000, lines.append)
    assert lines == ["1000 predictions"]


def test_an_answer_that_changes_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Session.run
    calls = []

    def drift(self: Session, images: ImagesLike) -> Float32:
        calls.append(1)
        drifted: Float32 = run(self, images) + np.float32(len(calls) == 40)
        return drifted

    monkeypatch.setattr(Session, "run", drift)
    row = soak(50, lambda line: None)
    assert row.wrong == 1
    assert not row.holds


def test_a_leak_is_seen_although_the_process_was_larger_before(monkeypatch: pytest.MonkeyPatch) -> None:
    # An earlier peak, as a session that ran something larger leaves it.
    block = bytearray(b"x") * (256 << 20)
    del block
    run = Session.run
    calls, leaked = count(), []

    def leak(self: Session, images: ImagesLike) -> Float32:
        # Blocks too large for what the process has freed before.
        if next(calls) % 10 == 0:
            leaked.append(bytearray(b"x") * (40 << 20))
        return run(self, images)

    monkeypatch.setattr(Session, "run", leak)
    row = soak(50, lambda line: None)
    assert row.growth_kb > ALLOWED_KB
    assert not row.holds


def test_growth_up_to_the_allowance_is_forgiven() -> None:
    assert SoakRow(10, 0, ALLOWED_KB).holds
    assert not SoakRow(10, 0, ALLOWED_KB + 1).holds
