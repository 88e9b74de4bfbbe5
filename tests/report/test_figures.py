"""Figures show the numbers they were given: what is drawn is read back from the axes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

from lapis import preset
from lapis.energy import estimate
from lapis.errors import LapisError
from lapis.ops.attention.reference import weights
from lapis.positions import relative_offsets
from lapis.report import figures
from lapis.trace import POINTS, Tally

if TYPE_CHECKING:
    from matplotlib.axes import Axes

pytest.importorskip("matplotlib")


def points(collection: Any) -> set[tuple[float, float]]:
    return {tuple(point) for point in collection.get_offsets().tolist()}


def shown(axes: Axes) -> npt.NDArray[Any]:
    """The array behind the only image of `axes`."""
    array = axes.images[0].get_array()
    assert array is not None
    return array


def test_a_raster_has_one_mark_for_every_spike_at_its_step() -> None:
    codes = np.array([3, 0, -1, 5, -5, 0])
    on, off = figures.raster(codes, 5).axes[0].collections
    assert points(on) == {(2, 0), (0, 3)}
    assert points(off) == {(4, 2), (0, 4)}


def test_a_sorted_raster_starts_with_the_earliest_and_ends_silent() -> None:
    on, off = figures.raster(np.array([[0, 1], [7, 4]]), 7, sort=True).axes[0].collections
    assert points(on) == {(0, 0), (3, 1), (6, 2)}
    assert points(off) == set()


def test_latencies_add_up_to_the_distance() -> None:
    q, k = np.array([0, 15, 4, 7]), np.array([3, 15, 0, 9])
    times, sums = figures.latencies(q, k, 15).axes
    key, query = times.collections[1:]
    assert points(query) == set(enumerate(15 - q))
    assert points(key) == set(enumerate(15 - k))
    assert np.asarray(sums.lines[0].get_ydata()).tolist() == [3, 3, 7, 9]
    assert sums.get_title() == "D = 9"


@pytest.mark.parametrize("log", [False, True])
def test_the_membrane_ends_at_the_affinity(log: bool) -> None:
    axes = figures.membrane([4, 10, 0], tau=5.0, chosen=1, log=log).axes[0]
    (mark,) = points(axes.collections[0])
    assert mark == pytest.approx((10, np.exp(-2)))
    assert axes.get_yscale() == ("log" if log else "linear")


@pytest.mark.parametrize("name", ["unsigned", "signed", "relative"])
def test_attention_shows_the_weights_of_the_operator(explain_torch: Callable[[str], Any], name: str) -> None:
    explained = explain_torch(name).explained
    config, block, head, query = explained.config, 1, 2, 4
    _, distance, weight = (shown(axes) for axes in figures.attention(explained, block, head, query).axes)
    q, k = (
        explained.trace[block, point].reshape(config.tokens, config.heads, -1).swapaxes(0, 1) for point in ("q", "k")
    )
    delay = None
    if explained.delays is not None:
        delay = explained.delays[block][relative_offsets(config.grid)].transpose(2, 0, 1)
    expected = weights(q, k, explained.tau[block], config.row_scale, delay)[head, query, 1:]
    np.testing.assert_allclose(np.ravel(weight), expected, rtol=1e-12)
    nearest, strongest = int(np.argmin(np.ravel(distance))), int(np.argmax(expected))
    assert np.ravel(distance)[strongest] == np.ravel(distance)[nearest]


def test_the_class_token_can_be_the_query(explain_torch: Callable[[str], Any]) -> None:
    assert "class token" in figures.attention(explain_torch("unsigned").explained, 0, 0, 0).get_suptitle()


def test_attention_maps_mark_the_query_patch() -> None:
    images = np.zeros((2, 8, 8, 3), dtype=np.uint8)
    maps = np.arange(2 * 16 * 16, dtype=float).reshape(2, 16, 16)
    made = figures.attention_maps(images, [5, 0], maps, maps)
    assert shown(made.axes[1]).tolist() == maps[0, 5].reshape(4, 4).tolist()
    x, y = (np.asarray(data) for data in made.axes[0].lines[0].get_data())
    assert (x.min(), x.max(), y.min(), y.max()) == (2, 4, 2, 4)


def test_activity_shows_every_block_and_point(explain_torch: Callable[[str], Any]) -> None:
    tally = explain_torch("unsigned").explained.tally
    expected = [[tally.activity(point, block) for block in range(tally.blocks())] for point in POINTS]
    np.testing.assert_array_equal(shown(figures.activity(tally).axes[0]), expected)


def test_energy_bars_are_as_long_as_the_energies() -> None:
    config = preset("lapis_tiny").deployed()
    made = estimate(config, dict.fromkeys(POINTS, 0.3))
    axes = figures.energy(made).axes[0]
    dense, ours = ([bar.get_width() for bar in container] for container in axes.containers)
    assert ours[-1] == made.energy_mj
    assert dense[-1] == made.dense_energy_mj
    assert sum(ours[:-1]) == pytest.approx(made.energy_mj, rel=1e-12)


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda: figures.raster([0.5], 15), "integers in -15..15"),
        (lambda: figures.raster([16], 15), "integers in -15..15"),
        (lambda: figures.latencies([1, 2], [1], 15), "same channels"),
        (lambda: figures.membrane([1, 2], 3.0, 2), "use 0..1"),
        (lambda: figures.membrane([1, 2], 0.0, 0), "time constant"),
        (lambda: figures.activity(Tally()), "holds nothing"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw: Callable[[], Any], says: str) -> None:
    with pytest.raises(LapisError, match=says):
        draw()


@pytest.mark.parametrize("place", [(9, 0, 0), (0, 9, 0), (0, 0, 99), (-1, 0, 0)])
def test_a_place_that_does_not_exist_is_refused(
    explain_torch: Callable[[str], Any], place: tuple[int, int, int]
) -> None:
    with pytest.raises(LapisError, match="does not exist"):
        figures.attention(explain_torch("unsigned").explained, *place)


def test_without_matplotlib_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(LapisError, match="pip install"):
        figures.raster([1], 15)
