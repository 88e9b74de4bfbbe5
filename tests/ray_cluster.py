"""A Ray cluster of two workers on this machine that runs the example, is interrupted, and loses a worker on the way.

It runs in processes of its own: `python tests/ray_cluster.py IMAGES OUT LOG` starts the cluster and the jobs, and with
an address as a fourth argument it is a job.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Images in a part; the example is told so, and the test counts on it.
PART = 3
# Long enough to be killed meanwhile.
SECONDS_PER_PART = 0.5
STORE_BYTES = 80_000_000
# Only where something hangs; a busy machine takes minutes.
PATIENCE_SECONDS = 300.0


def job(images: str, out: str, log: Path, address: str) -> None:
    """The example itself, whose actors first write down who begins which part, and then take their time."""
    import ray
    from examples import predict_with_ray

    class Slow(predict_with_ray.Answer):
        def __call__(self, part: dict[str, Any]) -> dict[str, Any]:
            node = ray.get_runtime_context().get_node_id()
            (log / f"{part['name']} {node} {os.getpid()}").touch()
            time.sleep(SECONDS_PER_PART)
            return super().__call__(part)

    predict_with_ray.Answer = Slow  # type: ignore[misc]
    sys.argv = ["predict_with_ray.py", images, out, "--part", str(PART), "--workers", "2", "--address", address]
    predict_with_ray.main()


def main(images: str, out: str, log: Path) -> None:
    # Sockets have short names.
    temporary = tempfile.mkdtemp(prefix="ray", dir="/tmp")
    # Ray notes the address of its cluster here, in a folder that it does not make.
    os.environ["RAY_TMPDIR"] = temporary
    Path(temporary, "ray").mkdir()
    from ray import cluster_utils

    shared = {"object_store_memory": STORE_BYTES, "include_dashboard": False}
    # A worker that is gone is noticed within a second or two.
    system = {"health_check_period_ms": 500, "health_check_failure_threshold": 3, "enable_worker_prestart": False}
    # The head of the cluster is a worker too.
    head = {"num_cpus": 2, "temp_dir": temporary, "_system_config": system, **shared}
    cluster: Any = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    try:
        node = cluster.add_node(num_cpus=2, **shared)
        arguments = [sys.executable, __file__, images, out, str(log), cluster.address]
        first = _interrupted(arguments, Path(out))
        begun_before = set(log.iterdir())
        second = subprocess.Popen(arguments)
        lost = _lose(cluster, node, log, begun_before)
        code = second.wait(PATIENCE_SECONDS)
        begun = sorted(path.name for path in log.iterdir() if path not in begun_before)
        print(json.dumps({"code": code, "first": first, "lost": lost, "begun": begun}))
    finally:
        cluster.shutdown()
        shutil.rmtree(temporary, ignore_errors=True)


def _interrupted(arguments: list[str], out: Path) -> dict[str, int]:
    """Kill a job when two parts are there; the files that it leaves, and when they were written."""
    running = subprocess.Popen(arguments)
    _wait_for(lambda: len(list(out.glob("*.parquet"))) >= 2 or running.poll() is not None)
    running.kill()
    running.wait()
    # Its actors end a moment later and may finish what they are writing.
    time.sleep(3 * SECONDS_PER_PART)
    return {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}


def _lose(cluster: Any, node: Any, log: Path, before: set[Path]) -> str:
    """Kill a worker in the middle of a part, with all of its processes; its line in the log."""

    def begun() -> list[str]:
        return [path.name for path in log.iterdir() if path not in before and node.node_id in path.name]

    _wait_for(lambda: bool(begun()))
    line = begun()[-1]
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(line.split()[2]), signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)
    return line


def _wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"nothing happened for {PATIENCE_SECONDS} seconds")
        time.sleep(0.02)


if __name__ == "__main__":
    if len(sys.argv) > 4:
        job(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
    else:
        main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
