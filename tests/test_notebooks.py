"""The notebooks run from top to bottom, on a small data set; as committed, they show what they showed when they ran."""

import re
from pathlib import Path

import numpy as np
import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel: pip install '.[test]'")

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
TINY = {
    "02_fine_tuning": {"IMAGES": 50, "TEST": 40, "EPOCHS": 3, "SEEDS": 1},
    "03_gates_and_routing": {"SAMPLES": 60},
    "04_lesions_reshuffling_trimming": {"SAMPLES": 60},
    "05_iterative_estimation": {"SAMPLES": 60, "TRAIN": 100, "EPOCHS": 1, "DRAWS": 1000},
    "06_language_model": {"TOKENS": 300, "WORDS": 20},
    "07_train_and_publish": {"IMAGES": 100, "EPOCHS": 2},
}
NEED_DATA = ("03_gates_and_routing", "04_lesions_reshuffling_trimming")
PUBLIC = {"keras_highway", "keras_highway.data", "keras_highway.data.ptb"}  # the doors that README shows


@pytest.fixture(scope="module")
def small_data(tmp_path_factory):
    """A folder with an MNIST and a CIFAR-10 of noise."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 255, (100, 28, 28), np.uint8), np.arange(100) % 10
    np.savez(folder / "mnist.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    images = rng.integers(0, 255, (100, 32, 32, 3), np.uint8)
    np.savez(folder / "cifar10.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    return folder


def test_there_are_notebooks():
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05", "06", "07"]
    assert {*TINY, *NEED_DATA} <= {path.stem for path in NOTEBOOKS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_committed_outputs_are_of_one_run_in_order(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    used = {name for cell in cells for name in re.findall(r"(?:from|import) (keras_highway[\w.]*)", cell.source)}
    assert used <= PUBLIC
    assert not re.search(r"/tmp/|/home/|/work/", path.read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the kernel's own machinery
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_runs(path, small_data, monkeypatch):
    monkeypatch.setenv("KERAS_HIGHWAY_DATA", str(small_data))
    assert all(cell.execution_count for cell in execute(path))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.stem not in NEED_DATA], ids=lambda p: p.stem)
def test_notebook_runs_without_data(path, monkeypatch, tmp_path):
    monkeypatch.delenv("KERAS_HIGHWAY_DATA", raising=False)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))  # nothing is prepared there
    assert all(cell.execution_count for cell in execute(path))


def execute(path):
    """Runs a notebook from top to bottom with its tiny settings; returns its code cells."""
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel: pip install '.[test]'")
    notebook = nbformat.read(path, as_version=4)
    settings = TINY.get(path.stem, {})
    tagged = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == bool(settings)
    for cell in tagged:
        for name, value in settings.items():
            cell.source, count = re.subn(rf"^{name} = [\d_]+", f"{name} = {value}", cell.source, flags=re.M)
            assert count == 1
    client = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}})
    client.execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]
