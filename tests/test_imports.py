"""Imports go down, files are short and well named, and importing the package is light."""

import ast
import functools
import graphlib
import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

ROOT = Path(__file__).parents[1]
TRAINING = ROOT / "keras_highway" / "training"
SOURCES = sorted(p for top in ("keras_highway", "training", "zoo") for p in (ROOT / top).rglob("*.py"))
# Modules and folders of keras_highway, from the ground up; a module imports its own floor and those below.
FLOORS = {
    "_support": 0,
    "equation": 0,
    "gating": 0,
    "tasks": 0,
    "specs": 0,
    "data": 0,
    "layers": 1,
    "models": 2,
    "analysis": 2,
    "variants": 2,
    "weights": 4,
    "weights.info": 1,
    "weights.card": 5,
    "weights.trained": 7,
    "weights.publish": 7,
    "weights.save": 7,
    "predictions": 5,
    "applications": 5,
    "language": 6,
    "export": 6,
    "report": 7,
    "training": 8,
    "cli": 9,
    "__main__": 10,
}
# The same of keras_highway.training: its folders and modules.
TRAINING_FLOORS = {
    "recipe": 0,
    "checkpoint": 1,
    "optimizers": 1,
    "data": 1,
    "recipes": 2,
    "program": 3,
    "language": 4,
    "meter": 4,
    "run_folder": 4,
    "distributed": 4,
    "shards": 5,
    "loop": 5,
    "train": 6,
}
HEAVY = ("matplotlib", "PIL", "huggingface_hub", "safetensors", "tensorflow_datasets", "IPython")
BACKENDS = ("tensorflow", "jax", "torch")


def part_of(path: Path) -> str:
    """The module or folder of keras_highway a file belongs to."""
    return path.relative_to(ROOT / "keras_highway").parts[0].removesuffix(".py")


@functools.cache
def imports(path: Path) -> list[str]:
    """Every absolute name a file imports, at its top or inside functions."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} has a relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def upward(path: Path, names: list[str], floors=FLOORS) -> list[str]:
    """Those of the imports that lead to a higher floor than the file's, or to a part without a floor."""
    here = floor_of(".".join(path.relative_to(ROOT).with_suffix("").parts), floors)
    return [n for n in names if n.split(".")[0] == "keras_highway" and floor_of(n, floors) > here]


def floor_of(name: str, floors=FLOORS) -> int:
    """The floor of a module of keras_highway: its own, else its folder's; 99 for a part without a floor."""
    _, part, *rest = [*name.split("."), ""][:3]
    return floors.get(f"{part}.{rest[0]}", floors.get(part, 99)) if rest else floors.get(part, 99)


@pytest.mark.parametrize("path", [p for p in SOURCES if p.is_relative_to(ROOT / "keras_highway")], ids=str)
def test_imports_go_down(path):
    part = part_of(path)
    if part == "__init__":
        return  # the front door re-exports from every floor
    assert part in FLOORS, f"give {part} a floor in {Path(__file__).name}"
    assert not upward(path, imports(path))
    above = [n for n in imports(path) if n.split(".")[0] in ("training", "zoo", "tests")]
    assert not above, f"the package must not import {above}"


@pytest.mark.parametrize("path", [p for p in SOURCES if p.is_relative_to(TRAINING)], ids=str)
def test_imports_of_training_go_down(path):
    part = path.relative_to(TRAINING).parts[0].removesuffix(".py")
    names = [n.split(".")[2] for n in imports(path) if n.startswith("keras_highway.training.")]
    if part != "__init__":
        assert not [n for n in names if TRAINING_FLOORS[n] > TRAINING_FLOORS[part]]


def test_modules_import_in_no_circle():
    """Imports inside functions count, too."""
    package = ROOT / "keras_highway"
    files = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    front = {"keras_highway"}  # which imports everything
    graph = {}
    for name, path in files.items():
        imported = {n if n in files else n.rpartition(".")[0] for n in imports(path)}
        graph[name] = set() if name in front else (imported & set(files)) - {name} - front
    assert "keras_highway.training.data.samples" in graph["keras_highway.training.data.source"]
    graphlib.TopologicalSorter(graph).prepare()  # raises a CycleError that names the files


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_few_parts_name_tensorflow(path):
    if part_of_package(path) not in ("_support", "data", "export", "training", "zoo"):
        assert not [n for n in imports(path) if n.split(".")[0] == "tensorflow"]


def part_of_package(path: Path) -> str:
    """As `part_of`; for files outside the package, their top folder."""
    return part_of(path) if path.is_relative_to(ROOT / "keras_highway") else path.relative_to(ROOT).parts[0]


def test_importing_the_package_is_light():
    """It imports where heavy packages and other backends cannot be, and adds none of another name to Keras's own."""
    heavy = HEAVY + tuple(name for name in BACKENDS if name != keras.backend.backend())
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({heavy!r})); import keras; keras_has = set(sys.modules)\n"
        "import keras_highway; print(*{name.split('.')[0] for name in set(sys.modules) - keras_has})"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    added = set(done.stdout.split()) - sys.stdlib_module_names - set(BACKENDS)  # of the backend, parts loaded on use
    assert added <= {"keras_highway", "keras", "tqdm", "msgspec"}
