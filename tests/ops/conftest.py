"""Every kernel test runs on every instruction set: the processor's own, or emulated where a build of that is found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lapis import native

# As the library lists them; without one, every test skips with the reason.
ISAS = native.known_isas() or (native.NONE,)
EMULATED = Path(__file__).resolve().parents[2] / "build" / "emulate" / "_kernels.so"


def run_on(isa: str) -> AbstractContextManager[None]:
    """Use one instruction set, or skip with the reason."""
    if not native.available():
        pytest.skip(f"no native kernels: {native.describe()}")
    if isa in native.isas():
        return native.force(isa)
    # What is emulated runs on AVX2.
    if "avx2" in native.isas() and EMULATED.is_file():
        return native.force(isa, EMULATED)
    pytest.skip(f"this processor has no {isa} and there is no emulated build; `make emulate` makes one")


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    with run_on(request.param):
        yield request.param
