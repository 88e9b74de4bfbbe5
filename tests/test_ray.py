"""The example for Ray Data answers every image once, although its job is interrupted and a worker is lost."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lapis import Session
from tests.docs.given import make
from tests.ray_cluster import PART

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "predict_with_ray.py"
BROKEN = "val/broken.png"

for package in ("ray", "pyarrow"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install 'ray[data]'", allow_module_level=True)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    places = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    # Ray would make a password for the cluster, and report its use.
    environment = {"PYTHONPATH": places, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    environment |= {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Thirty images at any depth, and a file that is none."""
    make("pictures", tmp_path)
    (tmp_path / "pictures" / BROKEN).write_text("no image")
    return tmp_path / "pictures"


def test_every_image_has_one_row_although_a_job_stops_and_a_worker_is_lost(images: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    out, log = tmp_path / "answers", tmp_path / "log"
    log.mkdir()
    done = run(ROOT / "tests" / "ray_cluster.py", images, out, log)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["code"] == 0, done.stderr

    # The second job did what was missing, and no more.
    files = {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    first, begun = facts["first"], [line.split() for line in facts["begun"]]
    assert 2 <= len(first) < len(files) == -(-31 // PART)
    assert {name: files[name] for name in first} == first
    assert {name for name, _, _ in begun} == files.keys() - first.keys()
    # The part that was lost was begun again, on the other worker.
    lost, node, _ = facts["lost"].split()
    assert {where for name, where, _ in begun if name == lost} > {node}

    rows = pq.read_table(out).to_pylist()
    names = sorted(str(path.relative_to(images)) for path in images.rglob("*.png"))
    assert sorted(row["image"] for row in rows) == names
    assert len(names) == 31
    session = Session("lapis_tiny.cifar10")
    for row in rows:
        if row["image"] == BROKEN:
            assert (row["class"], row["score"]) == (None, None)
            assert "image" in row["error"]
        else:
            best = session.predict([images / row["image"]], top_k=1)[0][0]
            assert (row["class"], row["error"]) == (best.label, None)
            assert row["score"] == pytest.approx(best.score)

    # A third start has nothing to do and needs no cluster; another job does not mix with this one.
    again = run(EXAMPLE, images, out, "--part", str(PART))
    assert again.stdout == f"{len(files)} parts, of which {len(files)} were done before\n"
    other = run(EXAMPLE, images, out, "--part", str(PART + 1))
    assert other.returncode == 2
    assert "files of another job" in other.stderr
    assert "Traceback" not in other.stderr


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    refused = run(EXAMPLE, tmp_path, tmp_path / "answers")
    assert refused.returncode == 2
    assert "has no images (.jpg" in refused.stderr
