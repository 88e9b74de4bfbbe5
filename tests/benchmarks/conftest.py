"""What the tests of the benchmarks share."""

from __future__ import annotations

import pytest

from lapis import native


@pytest.fixture
def needs_kernels() -> None:
    if not native.available():
        pytest.skip(f"no native kernels: {native.describe()}")
