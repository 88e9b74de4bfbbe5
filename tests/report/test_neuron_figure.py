"""The picture of a neuron shows the neuron."""

from __future__ import annotations

import io

import numpy as np
import pytest

from lapis.deploy.neuron import NeuronHistory

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'lapis-snn[plot]'")

from lapis.report.neuron_figure import neuron_figure


@pytest.mark.parametrize("spike", [0, 3, 4])
def test_a_picture_has_three_panels_and_marks_the_spike(spike: int) -> None:
    arrivals = np.array([[0, 3], [-2, 0], [0, 0], [0, 0]])
    current = np.cumsum(arrivals.sum(axis=1))
    history = NeuronHistory(4, arrivals, current, np.cumsum(current), np.array([9, 7, 5, 3]), spike, 3, 4 - spike)
    figure = neuron_figure(history, "a neuron")
    assert len(figure.axes) == 3
    marked = [line for line in figure.axes[2].lines if line.get_marker() == "o"]
    assert len(marked) == (spike < 4)
    if marked:
        assert np.asarray(marked[0].get_xdata()).tolist() == [4 + spike]
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    assert buffer.getvalue().startswith(b"\x89PNG")
