"""Random networks of awkward sizes; every engine test runs on every instruction set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ops.conftest import ISAS, run_on


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    with run_on(request.param):
        yield request.param
