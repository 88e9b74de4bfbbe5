"""Every kernel test runs on every instruction set: the processor's own, or emulated where a build of that is found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lapis import native

EMULATED = Path(__file__).resolve().parents[2] / "build" / "emulate" / "_kernels.so"


def run_on(isa: str) -> AbstractContextManager[None]:
    """Use one instruction set, or skip with the reason."""
    if not native.available():
        pytest.skip(f"no native kernels: {native.describe()}")
    if isa in native.isas():
        return native.force(isa)
    if isa.startswith(("avx512", "amx")) and "avx2" in native.isas() and EMULATED.is_file():
        return native.force(isa, EMULATED)
    pytest.skip(f"this processor has no {isa} and there is no emulated build; `make emulate` makes one")


@pytest.fixture(params=native.ISAS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    with run_on(request.param):
        yield request.param
