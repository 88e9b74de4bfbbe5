"""The table of cards: every architecture has one row, and what is not in the table still runs."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from lapis.errors import LapisError
from lapis.ops.gpu import choice
from lapis.ops.gpu.choice import CARDS, OTHER, card_of


def test_every_architecture_has_one_row() -> None:
    counts = Counter(name for card in CARDS for name in card.architectures)
    assert set(counts.values()) == {1}


def test_a_name_with_features_finds_its_row_and_an_unknown_one_runs_plain() -> None:
    assert card_of("gfx942:sramecc+:xnack-").words == "v_sad_u8"
    assert card_of("sm_999") is OTHER


def test_few_levels_go_to_the_matrix_units_and_many_to_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "card_of_device", lambda device: card_of("sm_90"))
    device = torch.device("cpu")
    most = card_of("sm_90").thermometer_levels
    assert choice.levels_by_thermometer(device, most) == most
    assert choice.levels_by_thermometer(device, most + 1) == 0
    with choice.force("words"):
        assert choice.levels_by_thermometer(device, 1) == 0
    with choice.force("thermometer"):
        assert choice.levels_by_thermometer(device, most + 1) == most + 1


def test_eager_can_be_forced_and_a_wrong_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with choice.force("eager"):
        assert choice.missing() is not None
        assert not choice.runs_on("cuda")
    monkeypatch.setenv("LAPIS_GPU", "fast")
    with pytest.raises(LapisError, match="eager, words, thermometer"):
        choice.requested()


def test_without_triton_a_gpu_runs_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not choice.runs_on("cuda")
    assert "pip install triton" in (choice.missing() or "")


def test_cpu_tensors_never_meet_triton_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert not choice.served_by_triton(torch.zeros(2))
