"""A short slice of `make fuzz`: a mutated file is rejected with one error, or runs and equals the integer model."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lapis.errors import LapisError
from lapis.pack import load
from tools.fuzz.campaign import ACCEPTED, CORPUS, EQUAL, FAILED, REJECTED, Campaign, corpus
from tools.fuzz.mutate import mutated
from tools.fuzz.seeds import seed_files

LOADS, RUNS = 1000, 200


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Campaign]:
    made = Campaign(corpus(), 18, tmp_path / "failures")
    yield made
    made.scratch.cleanup()


def test_loading_mutated_files_fails_in_one_way_only(campaign: Campaign) -> None:
    counts = campaign.load(LOADS)
    assert counts[FAILED] == 0
    assert sum(counts.values()) == LOADS
    assert min(counts[REJECTED], counts[ACCEPTED]) > LOADS / 10


def test_mutated_files_that_load_run_as_the_integer_model_does(campaign: Campaign) -> None:
    counts = campaign.run(RUNS)
    assert counts[FAILED] == 0
    assert counts[EQUAL] > RUNS / 10


def test_a_crash_an_exception_and_a_wrong_answer_are_failures(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tools.fuzz.campaign.load", lambda path: 1 / 0)
    assert campaign.load(3)[FAILED] == 3
    monkeypatch.setattr("tools.fuzz.campaign.load", lambda path: os.kill(os.getpid(), signal.SIGKILL))
    assert campaign.run(2)[FAILED] == 2
    assert len(list(campaign.failures.iterdir())) == 3
    assert "the process died" in capfd.readouterr().err


def test_the_corpus_holds_every_seed_and_what_was_found(tmp_path: Path) -> None:
    seeds = seed_files()
    for path in CORPUS.glob("*.safetensors"):
        if path.name in seeds:
            assert load(path).config is not None
        else:
            with pytest.raises(LapisError):
                load(path)
    assert seeds.keys() <= {path.name for path in CORPUS.iterdir()}


def test_mutations_repeat_by_their_seed() -> None:
    data = corpus()[0]
    one, again, other = (mutated(data, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one == again != other
