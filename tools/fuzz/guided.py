"""A coverage-guided fuzzer over the reader: atheris (libFuzzer) looks for inputs that reach new lines.

    python -m tools.fuzz.guided -runs=100000

It starts from the corpus and mutates bytes, or by the rules of `tools.fuzz.mutate`, and stops at the first file that is
neither rejected by a LapisError nor loaded. Options are libFuzzer's.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

import atheris
import numpy as np

from lapis.errors import LapisError
from lapis.pack import load
from tools.fuzz.campaign import CORPUS, PATIENCE_SECONDS
from tools.fuzz.mutate import mutated


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Half of the time by the structure of the file, else as libFuzzer likes."""
    generator = np.random.default_rng(seed)
    if generator.random() < 0.5:
        return mutated(data, generator)[:max_size]
    changed: bytes = atheris.Mutate(data, max_size)
    return changed


def main() -> None:
    warnings.simplefilter("error")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f.safetensors"

        def load_one(data: bytes) -> None:
            path.write_bytes(data)
            try:
                load(path)
            except LapisError as error:
                if "\n" in str(error):
                    raise RuntimeError("the error has several lines") from error

        # New inputs go into the first folder, which is not that of the repository.
        options = [*sys.argv, f"-timeout={PATIENCE_SECONDS}", "-max_len=65536", folder, str(CORPUS)]
        atheris.instrument_all()
        atheris.Setup(options, load_one, custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
