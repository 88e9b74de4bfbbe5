"""The page as a file: whole, small, safe, and holding the run it shows."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapis.energy import estimate
from lapis.errors import LapisError
from lapis.report.page import render, write_page
from lapis.report.page.page import payload


@pytest.fixture(scope="module")
def made(explain_deployed: Callable[[str], Any]) -> Any:
    return explain_deployed("unsigned")


def test_the_codes_of_the_run_are_in_the_page(made: Any) -> None:
    data = payload(made.explained)
    codes = np.frombuffer(zlib.decompress(base64.b64decode(data["codes"])), dtype=np.int8)
    trace = made.explained.trace
    expected = [trace[block, point][0].ravel() for block in data["blocks"] for point in data["points"]]
    np.testing.assert_array_equal(codes, np.concatenate(expected))
    assert {(block, point) for block in data["blocks"] for point in data["points"]} == set(trace)


def test_activity_and_energy_are_those_of_the_run(made: Any) -> None:
    data, explained = payload(made.explained), made.explained
    for point, fired in data["fired"].items():
        assert fired == [np.count_nonzero(explained.trace[block, point]) for block in range(explained.config.depth)]
    paper = next(each for each in data["energy"] if each["convention"] == "paper")
    assert paper["energy_mj"] == estimate(explained.config, explained.tally).energy_mj
    assert sum(row["ours"]["mj"] for row in paper["rows"]) == pytest.approx(paper["energy_mj"], rel=1e-12)
    assert data["int8_ratio"] == estimate(explained.config, explained.tally, costs="45nm_int8").ratio
    assert sum(row["dense"]["mj"] for row in paper["rows"]) == pytest.approx(paper["dense_energy_mj"], rel=1e-12)


def test_the_page_refers_to_nothing_outside(made: Any) -> None:
    text = render(made.explained)
    assert "default-src 'none'" in text
    without_namespace = text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|@import|<link[^>]+stylesheet|<script[^>]+src", without_namespace)
    assert not re.search(r"@[A-Z]+@", text)


def test_names_cannot_break_out_of_the_page(made: Any) -> None:
    hostile = dataclasses.replace(made.explained, model="</script><script>alert(1)</script>", label="<!--")
    text = render(hostile)
    assert text.count("</script>") == 2
    assert "alert(1)</script>" not in text
    inside = re.search(r'id="data">(.*?)</script>', text, re.S)
    assert inside is not None
    assert json.loads(inside[1])["model"] == hostile.model


def test_a_network_too_large_for_one_page_keeps_queries_and_keys(made: Any) -> None:
    whole = payload(made.explained)
    small = payload(made.explained, limit=len(whole["codes"]) // 2)
    assert small["points"][:2] == ["q", "k"] or set(small["points"]) >= {"q", "k"}
    assert len(small["points"]) < len(whole["points"])
    least = payload(made.explained, limit=1)
    assert least["points"] == ["q", "k"]
    assert least["blocks"] == [0, made.explained.config.depth - 1]
    assert least["fired"] == whole["fired"]


def test_the_same_run_gives_the_same_file(made: Any, tmp_path: Path) -> None:
    first, second = tmp_path / "a.html", tmp_path / "deep" / "b.html"
    assert write_page(first, made.explained) == write_page(second, made.explained) == first.stat().st_size
    assert first.read_bytes() == second.read_bytes()


def test_a_folder_that_cannot_be_written_is_one_clear_error(made: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LapisError, match="cannot write"):
        write_page(tmp_path / "file" / "page.html", made.explained)


def test_torch_and_integers_explain_the_same_network(explain_torch: Callable[[str], Any], made: Any) -> None:
    in_torch = explain_torch("unsigned").explained
    np.testing.assert_allclose(in_torch.attention.tau, made.explained.attention.tau, rtol=1e-6)
    assert in_torch.attention.readout is not None
    np.testing.assert_allclose(in_torch.attention.readout.scale, made.explained.attention.readout.scale, rtol=1e-6)
    np.testing.assert_allclose(in_torch.attention.readout.shift, made.explained.attention.readout.shift, rtol=1e-5)
    keys = list(made.explained.trace)
    same = [np.mean(in_torch.trace[key] == made.explained.trace[key]) for key in keys]
    # Float summation order may move a code that lies on a threshold; whole arrays must not differ.
    assert min(same) > 0.95
