"""A session outlives the calls in flight, and works in a forked child, whatever ends or forks while it predicts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lapis import native, pack
from tests.networks import wide_network

# It crashed in three of three tries.
TRIES = 1
# Longer than the batch that is in flight takes, and far below any patience.
PATIENCE = 120

# A large batch keeps a daemon thread inside the engine while the rest of each script runs.
BUSY = """
import atexit, gc, multiprocessing, os, signal, sys, threading, time
import numpy as np
import lapis

MODEL = sys.argv[1]
session = lapis.Session(MODEL, threads=2)
batch = np.random.default_rng(0).integers(0, 256, (64, 20, 20, 3), dtype=np.uint8)
few = batch[:2]
want = session.run(few)
begun = threading.Event()

def predict(session, images):
    while True:
        begun.set()
        session.run(images)

def start(session):
    threading.Thread(target=predict, args=(session, batch), daemon=True).start()
    begun.wait()
    # Until the engine is inside its call, and not only Python.
    time.sleep(0.02)
"""

ENDINGS = {
    "the interpreter ends": "start(session)",
    "an atexit function predicts": "atexit.register(lambda: session.run(few))\nstart(session)",
    "an atexit function comes first": "start(session)\natexit.register(gc.collect)",
    "the last name is deleted": "start(session)\ndel session\ngc.collect()\ntime.sleep(0.1)",
    "a cycle holds the session": "loop = [session]\nloop.append(loop)\nstart(session)\ndel loop, session\ngc.collect()",
    "many threads are inside": "for _ in range(4): start(session)",
    "the engine is closed": "engine = session._engine\nstart(session)\nif engine is not None: engine.close()",
    "an exception ends the program": "start(session)\nsys.stderr = open(os.devnull, 'w')\nraise SystemExit(0)",
}

FORKS = {
    "os.fork": """
def child():
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os._exit(0 if (session.run(few) == want).all() else 1)
codes = [child() for _ in range(5)]
""",
    "multiprocessing": """
def work():
    sys.exit(0 if (session.run(few) == want).all() else 1)
codes = []
for _ in range(5):
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    codes.append(process.exitcode)
""",
    "a pool": """
def answer(_):
    return bool((session.run(few) == want).all())
with multiprocessing.get_context("fork").Pool(2) as pool:
    codes = [0 if good else 1 for good in pool.map(answer, range(6))]
""",
    "a new session in the child": """
def work():
    sys.exit(0 if (lapis.Session(MODEL, threads=2).run(few) == want).all() else 1)
process = multiprocessing.get_context("fork").Process(target=work)
process.start()
process.join()
codes = [process.exitcode]
""",
    "a signal handler that forks": """
codes = []
def handler(*_):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if (session.run(few) == want).all() else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.01)
while not codes:
    session.run(few)
""",
}

# functools.cached_property had a lock of its own, held while a network's tables are computed for the first time.
FIRST_RUN = """
import os, sys, threading, time
import numpy as np
import lapis
from lapis.deploy import leak

entered, table = threading.Event(), leak.leak_table
def slow(*arguments):
    entered.set()
    time.sleep(2)
    return table(*arguments)
leak.leak_table = slow
session = lapis.Session(sys.argv[1], native=False)
few = np.zeros((1, 20, 20, 3), np.uint8)
threading.Thread(target=session.run, args=(few,)).start()
entered.wait()
pid = os.fork()
if pid == 0:
    session.run(few)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


# OpenBLAS has threads of its own only where it may use two cores and the matrices are large.
NUMPY = """
import os, sys, threading, time
import numpy as np
import lapis
from lapis.deploy.arithmetic import exact_product

large = np.ones((900, 900), np.int8)
def multiply():
    while True:
        exact_product(large, large)
for _ in range(3):
    threading.Thread(target=multiply, daemon=True).start()
time.sleep(0.3)
session = lapis.Session(sys.argv[1], native=False)
few = np.zeros((1, 20, 20, 3), np.uint8)
"""

NUMPY_ENDINGS = {
    "the interpreter ends": "",
    "children are forked": """
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        session.run(few)
        exact_product(large, large)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
""",
    "an earlier atexit function predicts": "",
}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "model.safetensors"
    pack.save(path, wide_network(depth=2))
    return path


def run_script(script: str, packed: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, str(packed)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **variables},
    )


@pytest.mark.skipif(not native.available(), reason="no native kernels")
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_session_outlives_the_calls_in_flight(ending: str, packed: Path) -> None:
    for _ in range(TRIES):
        done = run_script(BUSY + ENDINGS[ending], packed)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("way", FORKS)
def test_a_child_forked_during_a_prediction_predicts(way: str, packed: Path) -> None:
    done = run_script(f"{BUSY}\nstart(session)\n{FORKS[way]}\nassert codes and not any(codes), codes\n", packed)
    assert done.returncode == 0, done.stderr


def test_a_child_forked_while_tables_are_computed_predicts(packed: Path) -> None:
    done = run_script(FIRST_RUN, packed)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("ending", NUMPY_ENDINGS)
def test_numpy_multiplies_in_daemon_threads_while_a_program_forks_or_ends(ending: str, packed: Path) -> None:
    first = "import atexit; atexit.register(lambda: session.run(few))" if "atexit" in ending else ""
    script = f"{first}\n{NUMPY}\n{NUMPY_ENDINGS[ending]}"
    done = run_script(script, packed, OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2")
    assert done.returncode == 0, done.stderr
