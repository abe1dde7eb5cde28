"""The notebooks run from top to bottom, outside of the checkout, with the package as a wheel installs it, on a small
data set; as committed, they show what they showed when they ran."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pages import DOORS
from PIL import Image

from training import notebooks

nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel: pip install '.[test]'")

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TINY = {
    "02_fine_tuning": {"IMAGES": 50, "TEST": 40, "EPOCHS": 3, "SEEDS": 1, "DOGS": 20, "DOG_TEST": 10},
    "03_gates_and_routing": {"SAMPLES": 60},
    "04_lesions_reshuffling_trimming": {"SAMPLES": 60},
    "05_iterative_estimation": {"SAMPLES": 60, "TRAIN": 100, "EPOCHS": 1, "DRAWS": 1000},
    "06_language_model": {"TOKENS": 300, "WORDS": 20},
    "07_train_and_publish": {"IMAGES": 100, "EPOCHS": 2},
    "08_photographs": {"PHOTOGRAPHS": 40},
}
PRINTED = {"07_train_and_publish": "mnist10_w16: test accuracy "}  # by a cell that picks lines of a command's
NEED_DATA = ("03_gates_and_routing", "04_lesions_reshuffling_trimming", "08_photographs")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder of the package as a wheel has it, without the checkout and without its dependencies."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder / "wheel", ROOT], check=True)
    (wheel,) = (folder / "wheel").glob("keras_highway-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", folder / "site", wheel], check=True)
    return folder / "site"


@pytest.fixture(scope="module")
def small_data(tmp_path_factory):
    """A folder with an MNIST, a CIFAR-10, an Imagenette and an Imagewoof of noise."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 255, (100, 28, 28), np.uint8), np.arange(100) % 10
    np.savez(folder / "mnist.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    images = rng.integers(0, 255, (100, 32, 32, 3), np.uint8)
    np.savez(folder / "cifar10.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    for name in ("imagenette/val", "imagewoof/train", "imagewoof/val"):
        for k in range(40):
            path = folder / name / f"class{k % 10}" / f"{k}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (130, 140, 3), np.uint8)).save(path)
    return folder


def prints(source):
    """Whether a cell calls `print`, `plt.show` or, of notebook 02, `report` when it runs, not only in its functions."""
    code = "\n".join(line for line in source.splitlines() if not line.lstrip().startswith("%"))
    waiting = [node for node in ast.parse(code).body if not isinstance(node, ast.FunctionDef)]
    called = [node.func for part in waiting for node in ast.walk(part) if isinstance(node, ast.Call)]
    return any(ast.unparse(name) in ("print", "plt.show", "report") for name in called)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_committed_outputs_are_of_one_run_in_order(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert PRINTED.get(path.stem, "") in "".join(output.get("text", "") for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [
        cell.source for cell in cells if "colab" not in cell.source and prints(cell.source) and not cell.outputs
    ]
    used = {name for cell in cells for name in re.findall(r"(?:from|import) (keras_highway[\w.]*)", cell.source)}
    assert used <= set(DOORS)
    assert not re.search(r"/tmp/|/home/|/work/", path.read_text("utf-8"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_opens_with_its_subject_time_and_data(path):
    first, *others = nbformat.read(path, as_version=4).cells
    assert first.cell_type == "markdown" and first.source.startswith("# ")
    time = re.search(r"^\*\*Time:\*\* (.+)$", first.source, re.M)
    assert time and re.search(r"\d+ (s|minutes?)\b.*processor time", time[1])
    needs = re.search(r"^\*\*Data:\*\* (.+)$", first.source, re.M)
    assert needs
    code = "\n".join(cell.source for cell in others if cell.cell_type == "code")
    named = {name for name in ("mnist", "cifar10") if f'"{name}"' in code and "load_dataset" in code}
    assert all(name in needs[1] for name in named)  # each with the command that fetches it
    assert not named or "mnist.load_data()" in needs[1]
    photographs = [name for name in ("imagenette", "imagewoof") if f'/ "{name}"' in code]
    assert all(f"`{name}/val/CLASS/*`" in needs[1] and f"/{name}2-160.tgz" in needs[1] for name in photographs)
    assert not photographs or "KERAS_HIGHWAY_ZOO" in needs[1]  # of their weights, which no wheel has
    assert "../" not in code and "sys.path" not in code  # nothing of the checkout


def test_links_of_a_notebook_lead_to_files_of_the_repository():
    """As GitHub reads them; `make docs` follows the site's."""
    texts = {path: [cell.source for cell in nbformat.read(path, as_version=4).cells] for path in NOTEBOOKS}
    links = [(path, link) for path in texts for link in re.findall(r"\]\((\.[^)#]+)", "\n".join(texts[path]))]
    assert links
    assert not [(path.name, link) for path, link in links if not (path.parent / link).is_file()]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_opens_in_colab_and_installs_there(path, tmp_path):
    """One repository for all links; a copy for another address has its links and no other change."""
    first, second, *_ = nbformat.read(path, as_version=4).cells
    assert first.source.split("\n")[2] == notebooks.badge(path.name)
    assert f"{notebooks.REPOSITORY.removeprefix('https://github.com/')}/blob/main/notebooks/{path.name}" in first.source
    assert second.source == notebooks.install_cell() and not second.outputs

    copy = tmp_path / path.name
    shutil.copy(path, copy)
    notebooks.link(copy, "https://github.com/lab/nets")
    assert copy.read_text().replace("github/lab/nets", "github/ORG/keras_highway").replace(
        "github.com/lab/nets", "github.com/ORG/keras_highway"
    ) == path.read_text("utf-8")
    notebooks.link(copy)
    assert copy.read_text() == path.read_text()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the kernel's own machinery
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_runs(path, small_data, installed, monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HIGHWAY_DATA", str(small_data))
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.delenv("KERAS_HIGHWAY_ZOO", raising=False)
    if "KERAS_HIGHWAY_ZOO" in nbformat.read(path, as_version=4).cells[0].source:  # needs weights that no wheel has
        monkeypatch.setenv("KERAS_HIGHWAY_ZOO", str(ROOT / "zoo" / "weights"))
    cells = execute(path, tmp_path, installed)
    assert all(cell.execution_count for cell in cells)
    printed = "".join(output.get("text", "") for cell in cells for output in cell.outputs)
    assert "Left out:" not in printed and PRINTED.get(path.stem, "") in printed


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.stem not in NEED_DATA], ids=lambda p: p.stem)
def test_notebook_runs_without_data(path, installed, monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HIGHWAY_DATA", str(tmp_path))  # an empty folder, so that nothing is downloaded
    monkeypatch.delenv("KERAS_HIGHWAY_ZOO", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(installed))
    assert all(cell.execution_count for cell in execute(path, tmp_path, installed))


def execute(path, folder, installed):
    """Runs a notebook from top to bottom in a folder, with its tiny settings; returns its code cells."""
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel: pip install '.[test]'")
    notebook = nbformat.read(path, as_version=4)
    settings = TINY.get(path.stem, {})
    tagged = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == bool(settings)
    for cell in tagged:
        for name, value in settings.items():
            cell.source, count = re.subn(rf"^{name} = [\d_]+", f"{name} = {value}", cell.source, flags=re.M)
            assert count == 1
    notebook.cells.append(nbformat.v4.new_code_cell("import keras_highway\nprint(keras_highway.__file__)"))
    client = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}})
    client.execute()
    assert notebook.cells[-1].outputs[-1].text.startswith(str(installed))
    return [cell for cell in notebook.cells if cell.cell_type == "code"]
