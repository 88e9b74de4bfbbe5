"""A damaged or hostile file gets one clear error: no crash, no large allocation, nothing executed."""

from __future__ import annotations

import io
import os
import resource
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from benchmarks.synthetic import random_network
from lapis.config import LapisConfig
from lapis.deploy import integer
from lapis.errors import LapisError
from lapis.pack import is_packed, load, pack, reader
from tests.pack.damage import CONFIG, DAMAGES, Damage

# Python's own objects while a header is parsed, beside a few copies of the file.
ALLOWED_BYTES = 2 << 20
ALLOWED_COPIES = 6


@pytest.fixture(scope="module")
def sound() -> bytes:
    return pack(random_network(CONFIG))


@pytest.fixture(scope="module")
def files() -> dict[LapisConfig, bytes]:
    """A sound file of every configuration that is damaged."""
    return {config: pack(random_network(config)) for config in {damage.config for damage in DAMAGES}}


def _refused(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(LapisError) as caught:
            load(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < ALLOWED_BYTES + ALLOWED_COPIES * len(data)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_damaged_below_was_sound(files: dict[LapisConfig, bytes], tmp_path: Path) -> None:
    for config, data in files.items():
        (tmp_path / "f").write_bytes(data)
        assert load(tmp_path / "f").config == config


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: f"rule {damage.rule}: {damage.word}")
def test_a_file_that_breaks_a_rule_is_refused(files: dict[LapisConfig, bytes], tmp_path: Path, damage: Damage) -> None:
    data = damage.change(files[damage.config])
    assert data != files[damage.config]
    assert damage.word in _refused(tmp_path / "f", data)


def test_a_file_cut_anywhere_is_refused(sound: bytes, tmp_path: Path) -> None:
    for length in [*range(24), len(sound) // 2, len(sound) - 1]:
        _refused(tmp_path / "f", sound[:length])


def test_a_huge_sparse_file_is_refused_unread(sound: bytes, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(sound)
    os.truncate(path, 1 << 40)
    with pytest.raises(LapisError, match="it has"):
        load(path)


@pytest.mark.parametrize("change", [b"", b"\0"])
def test_a_file_that_changes_while_it_is_read_is_refused(sound: bytes, tmp_path: Path, change: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(sound)

    class Changed(io.BytesIO):
        """A file of another length than the system says."""

        def fileno(self) -> int:
            return file.fileno()

    with path.open("rb") as file:
        other = Changed(sound + change if change else sound[:-1])
        head = reader._read_head(other)
        with pytest.raises(LapisError, match="changed while it was read"):
            reader.PackedFile.of(other, head, "f")


@pytest.mark.parametrize("path", ["missing", "."])
def test_what_is_no_file_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(LapisError, match="cannot read"):
        load(tmp_path / path)
    assert not is_packed(tmp_path / path)


ROUNDS = 2000
# Far below what one absurd shape would ask for, far above what this process needs.
GROWTH_KILOBYTES = 64 << 10


def test_thousands_of_mutations_are_refused_or_still_run(sound: bytes, tmp_path: Path) -> None:
    generator = np.random.default_rng(20)
    image = generator.integers(0, 256, (1, 8, 8, 3), dtype=np.uint8)
    path, header = tmp_path / "f", int.from_bytes(sound[:8], "little") + 8
    refused = ran = 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(ROUNDS):
        path.write_bytes(_mutated(sound, header, generator))
        try:
            network = load(path)
        except LapisError:
            refused += 1
            continue
        # Damage that is still a valid network must compute without a warning, which here would be an error.
        assert np.isfinite(integer.run(network, image)).all()
        ran += 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < GROWTH_KILOBYTES
    assert refused > ROUNDS / 4
    assert ran > ROUNDS / 20


def _mutated(data: bytes, header: int, generator: np.random.Generator) -> bytes:
    """A few bytes changed in the header or anywhere, a piece cut out, doubled, zeroed, or two pieces exchanged."""
    new = bytearray(data)
    kind = int(generator.integers(6))
    limit = header if generator.random() < 0.5 else len(new)
    begin = int(generator.integers(limit))
    end = min(len(new), begin + int(generator.integers(1, 40)))
    if kind <= 1:
        for _ in range(int(generator.integers(1, 4))):
            new[int(generator.integers(limit))] = int(generator.integers(256))
    elif kind == 2:
        del new[begin:end]
    elif kind == 3:
        new[begin:begin] = new[begin:end]
    elif kind == 4:
        new[begin:end] = bytes([int(generator.choice([0, 255]))]) * (end - begin)
    else:
        other = int(generator.integers(len(new) - 1))
        new[begin], new[other] = new[other], new[begin]
    return bytes(new)
