"""Silence is learned: minimum codes follow the goals, and a resumed run does the same."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lapis import models
from lapis._util.run_layout import ACTIVITY_FILE, BEST_FILE, LAST_FILE, STATE_FILE
from lapis.config import MinCodeByPoint
from lapis.errors import LapisError
from lapis.nn import calibrate
from lapis.nn.quantizer import ActivationQuantizer
from lapis.trace import Point
from lapis.train.distributed import Processes
from lapis.train.log import read_evaluations, read_steps
from lapis.train.loop import Run, train
from lapis.train.recipe import Recipe, Sparsity
from lapis.train.sparsity import (
    ActivityCounter,
    DeadlineScheduler,
    activities,
    choose_deadlines,
    mean_activity,
    min_code_for,
)
from tests.networks import shaken_network, small_config, small_model

Micro = Callable[..., Recipe]
RunMicro = Callable[..., dict[str, Any]]

GOALS = tuple(f"sparsity.{point}=0.4" for point in ("attention_in", "v", "mlp_in"))


def counted(*rows: list[int]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_minimum_codes_are_the_lowest_that_reach_the_goal_in_one_block() -> None:
    table = counted([10, 40, 30, 15, 5])
    assert min_code_for(table, 0.9) == (1,)
    assert min_code_for(table, 0.89) == (2,)
    assert min_code_for(table, 0.5) == (2,)
    assert min_code_for(table, 0.2) == (3,)
    assert min_code_for(table, 0.05) == (4,)


def test_the_highest_code_always_fires() -> None:
    assert min_code_for(counted([0, 0, 0, 10]), 0.1) == (3,)
    assert min_code_for(counted([0, 10]), 0.1) == (1,)


def test_codes_are_silenced_where_they_carry_the_least_power() -> None:
    weak, strong = [0, 50, 50, 0, 0], [0, 5, 5, 40, 50]
    # A code 1 is a small part of what the strong block says.
    assert min_code_for(counted(weak, strong), 0.98) == (1, 2)


def test_goals_are_reached_by_as_few_silenced_codes_as_needed() -> None:
    table = torch.from_numpy(np.random.default_rng(0).integers(1, 100, (12, 16)).astype(np.float64))
    for goal in (0.9, 0.6, 0.31, 0.1):
        min_code = min_code_for(table, goal)
        fired = sum(float(row[code:].sum()) for row, code in zip(table, min_code, strict=True)) / float(table.sum())
        assert goal - 100 / float(table.sum()) <= fired <= goal


def test_a_counter_counts_what_would_fire_without_deadlines(alone: Processes) -> None:
    model, _ = small_model(small_config(min_code={"v": 3}, coding={"v": "signed"}))
    counter = ActivityCounter(model, alone)
    counter.start()
    torch.manual_seed(1)
    pixels = torch.rand(3, 3, 8, 8)
    codes = model.watch(pixels).trace
    counts = counter.stop()
    assert set(counts) == {"attention_in", "qk", "v", "readout", "mlp_in", "mlp_hidden"}
    for block in range(2):
        seen = np.abs(codes[block, "v"])
        assert int(counts["v"][block].sum()) == seen.size
        assert [int((seen == code).sum()) for code in range(3, 16)] == counts["v"][block, 3:].int().tolist()
    assert activities(model, counts)["v"] == pytest.approx(np.mean([(codes[b, "v"] != 0).mean() for b in (0, 1)]))


def test_a_scheduler_goes_down_in_a_straight_line_and_then_holds(alone: Processes) -> None:
    model, _ = small_model(small_config())
    scheduler = DeadlineScheduler(model, Sparsity(v=0.2, ramp=0.5, freeze_after=0.8, every=2), 100, alone)
    scheduler.first = {"v": 0.6}
    assert [scheduler.targets(step)["v"] for step in (0, 25, 50, 90)] == pytest.approx([0.6, 0.4, 0.2, 0.2])
    assert [step for step in range(100) if scheduler.due(step)] == list(range(0, 81, 2))


def test_blocks_that_are_computed_again_are_counted_once(micro: Micro, alone: Processes, tmp_path: Path) -> None:
    seen = []
    for again in ("false", "true"):
        recipe = micro(*GOALS, "sparsity.every=1", f"optim.recompute={again}")
        run = Run(recipe, None, tmp_path / again, alone, quiet=True)
        for parts, step in zip(run.batches.epoch(0, 0, run.lanes), range(4, 6), strict=False):
            row = run.step(parts, step, watch=True)
        gradients = [p.grad for p in run.state.student.parameters() if p.grad is not None]
        seen.append((row, run.deadlines.activity, run.state.student.config.min_code, gradients))
    assert seen[0][:3] == seen[1][:3]
    assert all(one.equal(two) for one, two in zip(seen[0][3], seen[1][3], strict=True))


def test_training_lowers_the_activity_to_its_goal(tmp_path: Path, micro: Micro, run_micro: RunMicro) -> None:
    recipe = micro(*GOALS, "sparsity.every=1", "optim.epochs=5")
    summary = run_micro(recipe, tmp_path / "run")
    for point in ("attention_in", "v", "mlp_in"):
        assert summary["activity"][point] < 0.5
    rows = read_steps(tmp_path / "run")
    assert float(rows[-1]["activity"]) < float(rows[0]["activity"])
    network = models.load(str(tmp_path / "run" / LAST_FILE)).torch()
    assert network.config.min_code != MinCodeByPoint()
    assert network.config.min_code_of("qk", 0) == 1
    kept = json.loads((tmp_path / "run" / ACTIVITY_FILE).read_text())["config"]["min_code"]
    assert kept == json.loads(json.dumps(dataclasses.asdict(network.config.min_code)))


def test_the_best_network_is_one_that_reached_its_goals(tmp_path: Path, micro: Micro, run_micro: RunMicro) -> None:
    run_micro(
        micro(*GOALS, "sparsity.every=1", "optim.epochs=5", "sparsity.ramp=1", "sparsity.freeze_after=1"), tmp_path
    )
    best = models.load(str(tmp_path / BEST_FILE)).torch().config
    assert best == models.load(str(tmp_path / LAST_FILE)).torch().config


def test_a_sparse_network_keeps_its_deadlines_as_a_start(tmp_path: Path, micro: Micro, run_micro: RunMicro) -> None:
    run_micro(micro(*GOALS, "sparsity.every=1"), tmp_path / "first")
    first = models.load(str(tmp_path / "first")).torch().config.min_code
    run_micro(micro(f"start={tmp_path / 'first'}", "optim.epochs=0.5"), tmp_path / "second")
    assert models.load(str(tmp_path / "second")).torch().config.min_code == first
    settings = (f"start={tmp_path / 'first'}", "optim.epochs=0.5", "model.min_code.v=2")
    run_micro(micro(*settings), tmp_path / "third")
    assert models.load(str(tmp_path / "third")).torch().config.min_code == MinCodeByPoint(v=2)


def test_a_stopped_run_resumes_with_the_same_silence(
    tmp_path: Path, micro: Micro, run_micro: RunMicro, alone: Processes
) -> None:
    recipe = micro(*GOALS, "optim.epochs=4", "sparsity.every=2", "checkpoint.save_steps=5")
    run_micro(recipe, tmp_path / "whole")
    run = Run(recipe, None, tmp_path / "half", alone, quiet=True)
    (tmp_path / "half").mkdir()
    for parts in run.batches.epoch(0, 0, run.lanes):
        run.step(parts, run.state.progress.step, watch=True)
        run.state.progress.step += 1
    run.state.save(tmp_path / "half")
    assert (tmp_path / "half" / STATE_FILE).is_file()
    train(recipe, None, tmp_path / "half", alone, resume=True, quiet=True)

    def without_clock(folder: Path) -> list[dict[str, Any]]:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in read_evaluations(folder)]

    assert (
        without_clock(tmp_path / "half") == without_clock(tmp_path / "whole")[-len(without_clock(tmp_path / "half")) :]
    )


def test_quantizers_say_what_they_silence() -> None:
    assert "min_code 3" in ActivationQuantizer(15, "signed", 3).extra_repr()
    assert "min_code" not in ActivationQuantizer(15, "signed").extra_repr()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("sparsity.v=0", "above 0"),
        ("sparsity.v=1.5", "at most 1"),
        ("sparsity.every=0", "at least 1"),
    ],
)
def test_impossible_goals_are_refused(micro: Micro, settings: str, words: str) -> None:
    with pytest.raises(LapisError, match=words):
        micro(settings)


def test_the_mean_leaves_out_what_feeds_no_layer() -> None:
    assert mean_activity({"v": 0.2, "mlp_in": 0.4, "qk": 1.0}) == pytest.approx(0.3)
    assert mean_activity({}) == 0.0


def test_silence_goes_where_weights_say_it_is_cheap() -> None:
    alike = [5, 5, 5, 5]
    first_block_matters = min_code_for(counted(alike, alike), 0.6, torch.tensor([100.0, 1.0]))
    assert first_block_matters == (1, 3)
    assert min_code_for(counted(alike, alike), 0.6, torch.tensor([1.0, 100.0])) == (3, 1)


def test_a_block_whose_silence_changes_no_answer_is_the_cheapest() -> None:
    model, images = shaken_network(small_config())
    calibrate(model, images)
    with torch.no_grad():
        # Nothing of the last block's attention reaches the answer.
        model.blocks[-1].attn.proj.weight.zero_()
        model.blocks[-1].attn.proj.bias.zero_()
    sparsity = Sparsity(v=0.25, mlp_in=0.25, sensitivity_weighted=True)
    scheduler = DeadlineScheduler(model, sparsity, 1, Processes(0, 1, torch.device("cpu")), images)
    assert scheduler.weights["v"][-1] == 0
    assert (scheduler.weights["v"][:-1] > 0).all()
    assert (scheduler.weights["mlp_in"] > 0).all()
    assert model.config.min_code == MinCodeByPoint()
    scheduler.counter.start()
    model(images)
    scheduler.move(1, scheduler.counter.stop())
    min_code = model.config.min_code
    assert isinstance(min_code.v, tuple)
    assert min_code.v[-1] == model.config.window


def test_help_for_silent_values_ends_before_the_run_does(alone: Processes) -> None:
    model, _ = small_model(small_config(coding={"v": "signed"}))
    sparsity = Sparsity(fade=0.5, silent_gradient=0.8, freeze_after=0.6)
    scheduler = DeadlineScheduler(model, sparsity, 100, alone)
    helped = {"attention_in", "qk", "readout", "mlp_in"}
    for step, negative, gradient in ((0, 1.0, 0.8), (25, 0.5, 0.8), (50, 0.0, 0.8), (80, 0.0, 0.4), (100, 0.0, 0.0)):
        scheduler.before_step(step, watch=False)
        for _, point, quantizer in model.quantizers():
            assert quantizer.negative == pytest.approx(negative if point in helped else 0)
            assert quantizer.silent_gradient == pytest.approx(gradient if point in helped else 0)
        assert scheduler.arrived(step) == (step >= 50)


def test_deadlines_of_a_first_network_reach_their_goals_at_once() -> None:
    model, images = shaken_network(small_config())
    calibrate(model, images)
    choose_deadlines(model, Sparsity(v=0.3, mlp_in=0.2), images)
    trace = model.watch(images).trace
    points: tuple[tuple[Point, float], ...] = (("v", 0.3), ("mlp_in", 0.2))
    for point, goal in points:
        assert np.mean([(trace[block, point] != 0).mean() for block in range(model.config.depth)]) <= goal + 0.01
    assert model.config.min_code.attention_in == 1
