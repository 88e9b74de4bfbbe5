"""Run the fuzzer of the C reader from the corpus, and keep how much it tried.

    python -m tools.fuzz.reader build/reader/fuzz-reader 1000000

`make reader` builds it first. Other options are libFuzzer's. A file that breaks the reader is kept as crash-*, and the
exit code is 1.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from lapis._util.terminal import echo
from tools.fuzz.campaign import CORPUS

WORDS = Path(__file__).with_name("words.dict")
LONGEST = 65536
# libFuzzer counts the time on the wall: a file of 0.2 s of the processor took 12 s on a busy machine.
WALL_SECONDS = 100


def main() -> int:
    program, runs, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        # New inputs go into the first folder, which is not that of the repository.
        command = [program, f"-runs={runs}", f"-timeout={WALL_SECONDS}", f"-max_len={LONGEST}", f"-dict={WORDS}"]
        done = subprocess.run(
            [*command, "-print_final_stats=1", *options, folder, str(CORPUS)], stderr=subprocess.PIPE, text=True
        )
        kept = len(list(Path(folder).iterdir()))
    if done.returncode:
        sys.stderr.write(done.stderr)
        return 1
    found = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    edges = re.findall(r" cov: (\d+) ", done.stderr)
    assert found is not None
    counts = {"files": int(found[1]), "edges reached": int(edges[-1]), "kept": kept, "failed": 0}
    echo(", ".join(f"{number:,} {what}" for what, number in counts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
