"""What `lapis info --check` looks at, and that a wrong bit fails it."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import numpy as np
import pytest

from lapis.cli import machine_check, main
from lapis.deploy import run
from lapis.errors import EXIT_CHECK_FAILED, EXIT_OK


def test_a_sound_machine_passes_and_says_what_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--check"]) == EXIT_OK
    text = capsys.readouterr().out
    assert "native kernels" in text
    assert "every bit of the logits equal" in text
    assert "FAIL" not in text


def test_a_wrong_bit_fails_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = run

    def wrong(network: Any, pixels: Any) -> Any:
        logits = np.array(right(network, pixels))
        logits[0, 0] += 1
        return logits

    monkeypatch.setattr(machine_check, "run", wrong)
    assert main(["info", "--check", "--json"]) == EXIT_CHECK_FAILED
    report = json.loads(capsys.readouterr().out)
    assert report["passed"] is False
    failed = [check for check in report["checks"] if check["state"] == "failed"]
    assert {check["name"].split(",")[0] for check in failed} == {"self-test"}
    assert all(check["advice"] for check in failed)


def test_without_torch_what_is_deployed_is_checked_still(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == "torch" else find(name, *rest))
    found = {check.name: check for check in machine_check.checks()}
    assert found["torch"].state == "missing"
    assert any(name.startswith("self-test") and check.state == "ok" for name, check in found.items())
