"""The notebooks run from top to bottom, on a small data set; as committed, they show what they showed when they ran."""

import re
from pathlib import Path

import numpy as np
import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel: pip install '.[test]'")

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
TINY = {"SAMPLES": 60}


@pytest.fixture(scope="module")
def small_data(tmp_path_factory):
    """A folder with an MNIST of noise."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 255, (100, 28, 28), np.uint8), np.arange(100) % 10
    np.savez(folder / "mnist.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    return folder


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_committed_outputs_are_of_one_run_in_order(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    used = {name for cell in cells for name in re.findall(r"(?:from|import) (keras_highway[\w.]*)", cell.source)}
    assert used <= {"keras_highway", "keras_highway.data"}  # the public doors
    assert not re.search(r"/tmp/|/home/|/work/", path.read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the kernel's own machinery
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_runs(path, small_data, monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel: pip install '.[test]'")
    monkeypatch.setenv("KERAS_HIGHWAY_DATA", str(small_data))
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", []):
            for name, value in TINY.items():
                cell.source, count = re.subn(rf"^{name} = .*", f"{name} = {value}", cell.source, flags=re.M)
                assert count == 1
    client = nbclient.NotebookClient(notebook, timeout=180, resources={"metadata": {"path": str(path.parent)}})
    client.execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
