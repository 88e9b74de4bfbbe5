"""Hints are commands that work where the user is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lapis._util import hints


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


def test_elsewhere_the_packages_of_an_extra_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ['torch>=2.6; extra == "train"', 'onnx; extra == "onnx"', 'lapis-snn[train,onnx]; extra == "all"', "numpy"]
    monkeypatch.setattr(hints, "_clone", lambda: None)
    monkeypatch.setattr("importlib.metadata.requires", lambda name: lines)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert hints.install_command("train") == "pip install 'torch>=2.6'"
    assert hints.install_command("all") == "pip install 'torch>=2.6' onnx"
    assert hints.install_command("gone") == "pip install 'lapis-snn[gone]'"
