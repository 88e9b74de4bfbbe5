"""A processor whose matrix unit is announced but hidden."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lapis.train.distributed import avoid_broken_amx

VARIABLE = "ONEDNN_MAX_CPU_ISA"


@pytest.mark.parametrize(
    ("level", "flags", "kept_out"),
    [(28, "avx2 amx_tile", True), (31, "avx2 amx_tile", False), (28, "avx2", False)],
)
def test_a_hidden_matrix_unit_is_kept_out(
    level: int, flags: str, kept_out: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    info = tmp_path / "cpuinfo"
    info.write_text(f"cpuid level\t: {level}\nflags\t\t: fpu {flags}\n", encoding="utf-8")
    assert avoid_broken_amx(info) == kept_out
    assert (VARIABLE in os.environ) == kept_out


def test_the_users_choice_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "AVX2")
    info = tmp_path / "cpuinfo"
    info.write_text("cpuid level\t: 28\nflags\t\t: amx_tile\n", encoding="utf-8")
    assert avoid_broken_amx(info)
    assert os.environ[VARIABLE] == "AVX2"


def test_no_such_file_says_nothing(tmp_path: Path) -> None:
    assert not avoid_broken_amx(tmp_path / "missing")
