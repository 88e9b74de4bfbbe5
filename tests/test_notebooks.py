"""The example notebooks run from their first cell to their last, and are stored as they were written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.ipynb"))
# A first import of torch on a busy machine takes a while; no cell works for longer than seconds.
CELL_SECONDS = 600


def read(path: Path) -> Any:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: pip install nbclient ipykernel")
    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.name for path in NOTEBOOKS])
# Of zmq and jupyter_client, about sockets, event loops and encryption of the machine's own loopback.
@pytest.mark.filterwarnings("ignore")
def test_a_notebook_runs_to_its_end(path: Path, tmp_path: Path) -> None:
    client = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install nbclient ipykernel")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install nbclient ipykernel")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install nbclient ipykernel")
    notebook = read(path)
    if any("lapis.train" in cell.source for cell in notebook.cells):
        pytest.importorskip("torch", reason="torch is not installed: pip install 'lapis-snn[train]'")
    client.NotebookClient(notebook, timeout=CELL_SECONDS, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in shown)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.name for path in NOTEBOOKS])
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert cells
    assert [cell for cell in cells if cell.outputs or cell.execution_count is not None] == []
