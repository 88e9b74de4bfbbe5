"""A packed network is the same network, in the same bytes, and small."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from benchmarks.synthetic import random_network
from lapis.config import Coding, CodingByPoint, preset
from lapis.convert.fold import from_model
from lapis.deploy import integer
from lapis.deploy.network import named_arrays
from lapis.deploy.schema import MAX_HEADER
from lapis.errors import LapisError
from lapis.nn import save_network
from lapis.pack import is_packed, load, pack, save
from lapis.preprocess import Preprocess
from tests.networks import data_bytes, small_config, small_model

TINY = small_config()


@given(
    style=st.sampled_from(["vit", "beit"]),
    bits=st.sampled_from([2, 6, 8]),
    width=st.sampled_from([2, 5, 8]),
    depth=st.integers(1, 3),
    window=st.integers(1, 20),
    coding=st.tuples(*[st.sampled_from(get_args(Coding))] * 6),
    seed=st.integers(0, 1 << 16),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_was_packed_comes_back_bit_for_bit(
    style: str,
    bits: int,
    width: int,
    depth: int,
    window: int,
    coding: tuple[Coding, ...],
    seed: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    config = TINY.replace(
        style=style,
        weight_bits=bits,
        width=width,
        heads=1,
        depth=depth,
        window=window,
        coding=CodingByPoint(*coding),
    )
    network = random_network(config, seed)
    path = tmp_path_factory.mktemp("packed") / "network.safetensors"
    save(path, network)
    back = load(path)
    for (name, ours, _), (_, theirs, _) in zip(named_arrays(network), named_arrays(back), strict=True):
        assert ours.dtype == theirs.dtype, name
        assert ours.tobytes() == theirs.tobytes(), name
    assert (back.config, back.preprocess, back.class_names) == (network.config, network.preprocess, network.class_names)
    assert pack(back) == path.read_bytes()
    image = np.random.default_rng(seed).integers(0, 256, (1, 8, 8, 3), dtype=np.uint8)
    assert (integer.run(back, image) == integer.run(network, image)).all()


def test_recorded_activity_survives_the_file_and_costs_others_nothing(tmp_path: Path) -> None:
    network = random_network(TINY)
    measured = dataclasses.replace(network, activity={"mlp_in": (0.25,) * TINY.depth, "v": (1 / 3,) * TINY.depth})
    save(tmp_path / "measured.safetensors", measured)
    back = load(tmp_path / "measured.safetensors")
    assert back.activity == {"mlp_in": (0.25,) * TINY.depth, "v": (0.3333,) * TINY.depth}
    assert pack(back) == (tmp_path / "measured.safetensors").read_bytes()
    assert b"activity" not in pack(network)
    with pytest.raises(LapisError, match="one per block"):
        dataclasses.replace(network, activity={"v": (0.5,) * (TINY.depth + 1)})


def test_a_trained_network_survives_the_file(tmp_path: Path) -> None:
    model, images = small_model(TINY, 1)
    preprocess = Preprocess(8, mean=(0.1, 0.2, 0.3), interpolation="bilinear", crop=0.5)
    network = from_model(model, preprocess, class_names=("cat", "dög", "x y"), fraction_bits=14)
    size = save(tmp_path / "n.safetensors", network)
    assert size == (tmp_path / "n.safetensors").stat().st_size
    back = load(tmp_path / "n.safetensors")
    assert (back.preprocess, back.class_names, back.fraction_bits) == (preprocess, ("cat", "dög", "x y"), 14)
    ours, theirs = integer.watch(network, images), integer.watch(back, images)
    assert (ours.logits == theirs.logits).all()
    assert all((ours.trace[key] == theirs.trace[key]).all() for key in ours.trace)


def test_packing_is_deterministic_across_processes(tmp_path: Path) -> None:
    code = (
        "import sys, hashlib; from lapis.config import LapisConfig; from benchmarks.synthetic import random_network;"
        "from lapis.pack import pack;"
        "c = LapisConfig(image_size=8, patch_size=4, classes=3, width=6, depth=2, heads=2, row_scale='pow2',"
        "readout='spikes', weight_bits=6);"
        "print(hashlib.sha256(pack(random_network(c))).hexdigest(), 'torch' in sys.modules)"
    )
    seen = {
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    }
    assert len(seen) == 1
    assert seen.pop().split()[1] == "False"


def test_any_safetensors_reader_opens_the_file(tmp_path: Path) -> None:
    path = tmp_path / "n.safetensors"
    save(path, random_network(TINY))
    with safe_open(path, framework="np") as file:
        assert "blocks.qkv.weight" in set(file.keys())
        assert file.get_tensor("blocks.qkv.weight").shape == (2, 18, 6)
        assert set(file.metadata()) == {"lapis_packed"}
    assert is_packed(path)


# The paper's model sizes in MB of 10**6 bytes.
PAPER_MB = [
    ("lapis_small", 10, 18.0),
    ("lapis_small", 100, 18.2),
    ("lapis_base", 1000, 70.7),
    ("lapis_large", 1000, 238.1),
]


@pytest.mark.parametrize(("name", "classes", "limit"), PAPER_MB)
def test_packed_presets_are_no_larger_than_the_papers(name: str, classes: int, limit: float) -> None:
    assert data_bytes(preset(name, classes=classes).deployed()) + MAX_HEADER / 64 < limit * 1e6


def test_the_size_is_that_of_the_tensors_and_a_short_header() -> None:
    config = preset("lapis_small", classes=10).deployed()
    assert 0 < len(pack(random_network(config))) - data_bytes(config) < MAX_HEADER / 64


def test_a_training_checkpoint_is_not_a_packed_network(tmp_path: Path) -> None:
    save_network(tmp_path / "trained.safetensors", small_model(TINY)[0])
    assert not is_packed(tmp_path / "trained.safetensors")
    with pytest.raises(LapisError, match="lapis pack"):
        load(tmp_path / "trained.safetensors")


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LapisError, match="cannot write"):
        save(tmp_path / "file" / "n.safetensors", random_network(TINY))
