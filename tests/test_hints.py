"""Hints are commands that work where the user is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lapis._util import hints
from lapis.errors import LapisError


def test_in_a_clone_the_extra_comes_from_the_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for name in ("python", "pip", "lapis"):
        (binaries / name).write_text("")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "lapis-snn"\n')
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    monkeypatch.setattr(sys, "executable", str(binaries / "python"))
    # As `make demo` installs it: not from the source tree, but in the clone's environment.
    monkeypatch.setattr(hints, "__file__", str(tmp_path / "a" / "b" / "c" / "d" / "hints.py"))
    monkeypatch.chdir(tmp_path)
    assert hints.install_command("train") == ".venv/bin/pip install '.[train]'"
    assert hints.tool("lapis") == ".venv/bin/lapis"
    monkeypatch.setenv("PATH", str(binaries))
    (binaries / "lapis").chmod(0o755)
    assert hints.tool("lapis") == "lapis"


def test_elsewhere_the_installed_package_gets_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "_clone", lambda: None)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert hints.install_command("train") == "pip install 'lapis-snn[train]'"


def test_a_missing_package_is_one_error_that_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(LapisError, match=r"to run an ONNX file needs onnxruntime: .*pip install .*onnx"):
        hints.import_optional("onnxruntime", "onnx", "to run an ONNX file")
