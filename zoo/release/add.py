"""`python -m zoo.release.add RUN...`: takes finished runs into the zoo.

Makes the weights' folder: log, recipe and result of the run, the weights
stamped with their variant, the row that describes them with their hash, the
card. Several runs of one recipe
with different seeds make one entry: the first run's weights, and n, mean and
standard deviation over all of them. Later seeds join an entry if its own
folder is the first RUN: its weights stay as they are, byte by byte. With
`--float16` weights are stored in half the size, if what was measured of them
holds on the data.

A finished search (`python -m training.search`) goes to `zoo/searches/NAME`, its
figure to `docs/NAME.png`.
"""

import argparse
import contextlib
import dataclasses
import functools
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock

import keras_highway as kh
from keras_highway._support.files import atomic_write, atomic_write_json, sha256_of
from keras_highway.tasks import LANGUAGE
from keras_highway.training.recipes import RECIPES
from keras_highway.training.run_folder import defaults_of, differences
from keras_highway.variants import task_of_variant
from keras_highway.weights import files as weights_file
from keras_highway.weights import registry
from keras_highway.weights.info import FILE, WeightsInfo, read_result, row_in_folder
from keras_highway.weights.publish import check_epochs
from keras_highway.weights.trained import weights_class
from training import read_json
from training.search import draw
from zoo.release.cards import write_card

ROOT = Path(__file__).resolve().parents[2]
ZOO = ROOT / "zoo" / "weights"
_PARTIAL = ".partial-"
_MAY_DIFFER = {"seed": None, "source": None}  # between runs of one recipe
_LICENCE = "Apache-2.0"  # of weights that this project trains
_LARGEST_IN_WHEEL = 40 * 2**20  # bytes of an entry
_ALL_IN_WHEEL = 90 * 2**20  # of all entries: a wheel on PyPI has at most 100 MB


def add(runs: list[Path], float16: bool = False, data_dir=None) -> Path:
    """Add runs of one recipe to the zoo."""
    with _alone():  # from the reading on: two that add a seed each must not both start from the same result
        return _add(runs, float16, data_dir)


def _add(runs, float16, data_dir) -> Path:
    joins = _is_entry(runs[0]) and len(runs) > 1
    results = [_result(run) for run in runs]
    recipes = [read_json(run / "recipe.json") for run in runs]
    if any(_differ(recipe, recipes[0]) for recipe in recipes):
        raise ValueError(f"Runs of different recipes cannot be one entry: {', '.join(map(str, runs))}")
    if len({result["epochs"] for result in results}) > 1:
        raise ValueError(f"Runs of different numbers of epochs cannot be one entry: {', '.join(map(str, runs))}")
    recipe = _as_published(recipes[0])
    for run, result in zip(runs, results, strict=True):
        check_epochs(run, result)
    row = dataclasses.replace(_row(runs[0], results[0]), recipe=recipe["name"])
    _check_joins(runs, results, joins, float16)
    pool = pooled(results)
    if not joins:
        pool.pop("stored", None)  # what an entry that is copied was measured at in half precision
    folder = ZOO / row.name
    with _partial(folder) as new:
        if joins:
            shutil.copytree(folder, new, dirs_exist_ok=True)
        else:
            _store(runs[0], row, new)
        if float16:
            before = measure(row, new, data_dir)  # by the same code; the run may have read or computed otherwise
            _store(runs[0], row, new, float16=True)
            actual = check_stored(row, new, data_dir, before)
            pool = {**pool, "stored": {"dtype": "float16", pool["metric"]: actual}}
        shutil.copy(runs[0] / "log.csv", new / "log.csv")
        atomic_write_json(new / "recipe.json", recipe)
        for run, result in zip(runs[1:], results[1:], strict=True):
            shutil.copy(run / "log.csv", new / f"log_seed{result['seeds'][0]}.csv")
        atomic_write_json(new / "result.json", pool)
        row = dataclasses.replace(row, sha256=sha256_of(new / registry.FILE))
        if (folder / registry.GATES).exists() and sha256_of(folder / registry.FILE) == row.sha256:
            shutil.copy(folder / registry.GATES, new / registry.GATES)  # they are of the very weights
            row = dataclasses.replace(row, gate_report=read_json(new / registry.GATES))
        write_card(dataclasses.replace(row, metrics=pool), new)
        atomic_write_json(new / registry.ROW, {**row_in_folder(row), "wheel": _in_wheel(new, folder)})
        if folder.exists():
            shutil.rmtree(folder)  # git has it
        new.rename(folder)
    registry.reread()
    return folder


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Let processes add to the zoo one after the other, and remove what a killed one has left."""
    with FileLock(Path(tempfile.gettempdir(), "keras_highway-zoo.lock")):
        for rest in ZOO.glob(f"{_PARTIAL}*"):
            shutil.rmtree(rest)
        yield


@contextlib.contextmanager
def _partial(folder) -> Iterator[Path]:
    """Make a folder next to an entry for the new files, and remove it in the end."""
    new = folder.with_name(_PARTIAL + folder.name)
    new.mkdir()
    try:
        yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _is_entry(run) -> bool:
    return run.resolve().parent == ZOO.resolve() and (run / registry.ROW).is_file()


def _check_joins(runs, results, joins, float16) -> None:
    """Refuses what would lose or falsify numbers of an entry."""
    for run, result in list(zip(runs, results, strict=True))[joins:]:
        if result["n"] > 1 or (_is_entry(run) and len(runs) > 1):
            raise ValueError(
                f"{run} is an entry, or of several runs: give it first, before the runs that are to join it."
            )
    if not joins:
        return
    folder = runs[0]
    if float16:
        raise ValueError(f"Further seeds leave the weights of {folder} as they are: leave out --float16.")
    if results[0]["n"] > 1 and "top5" in results[0]:
        raise ValueError(f"{folder} has the mean top-5 of {results[0]['n']} runs: give the folders of all runs.")
    if sha256_of(folder / registry.FILE) != read_json(folder / registry.ROW)["sha256"]:
        raise ValueError(f"{folder / registry.FILE} is not the file whose sha256 its {registry.ROW} names.")


def _row(run, result) -> WeightsInfo:
    """Return the row of an existing entry, or of new weights."""
    name = result["weights"]
    row = weights_class(result["variant"]).new_row(result, weights_file.read(run / registry.FILE).stamp)
    if name in registry.WEIGHTS:
        known = registry.find(name)
        for what, of_run, of_entry in (
            ("number of classes", len(row.classes), len(known.classes)),
            ("transform", row.transform, known.transform),
            *([("list of classes", row.classes, known.classes)] if result.get("class_names") else ()),
        ):
            if of_run != of_entry:
                raise ValueError(
                    f"The entry {name} has another {what} than {run}: {of_entry}, not {of_run}. Remove the entry first "
                    "if the run is to replace it."
                )
        return dataclasses.replace(known, metrics={}, gate_report={})
    return dataclasses.replace(row, licence=_LICENCE, data_licence=registry.DATA_LICENCES.get(row.data, ""))


def _in_wheel(new, folder) -> bool:
    """Whether an entry is small enough to be in the wheel, beside those that are in it already."""
    others = [row.parent for row in ZOO.glob(f"[!.]*/{registry.ROW}") if row.parent != folder and _is_in_wheel(row)]
    own = _size(new)
    return own <= _LARGEST_IN_WHEEL and own + sum(map(_size, others)) <= _ALL_IN_WHEEL


def _is_in_wheel(row: Path) -> bool:
    return read_json(row)["wheel"]


def _size(folder) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _store(run, row, folder, float16=False) -> None:
    if task_of_variant(row.variant) is LANGUAGE:
        kh.CharLM(weights=run, variant=row.variant).save(folder, float16)
        return
    classes, stamp = len(row.classes), weights_file.read(run / registry.FILE).stamp
    model = kh.create_model(row.variant, str(run / registry.FILE), classes=classes, classifier_activation=None)
    form = {key: stamp[key] for key in ("transform", "overrides", "removed") if key in stamp}
    weights_file.save(model, folder / registry.FILE, row.variant, classes, float16, **form)


def _differ(recipe: dict, other: dict) -> bool:
    """Whether two runs' recipes are not one; fields that came later have their defaults in the older one."""
    published = RECIPES.get(other["name"])
    return bool(differences(recipe, other, defaults_of(published) if published else {}).keys() - _MAY_DIFFER.keys())


def _as_published(recipe: dict) -> dict:
    """Return a recipe with the source of the repository's; refuse one that the repository does not have."""
    published = RECIPES.get(recipe["name"])
    differ = differences(recipe, published.to_dict(), defaults_of(published)) if published else recipe
    if differ := sorted(differ.keys() - _MAY_DIFFER.keys()):
        raise ValueError(
            f"The run's recipe {recipe['name']!r} is not the one of that name in keras_highway/training/recipes: "
            f"{', '.join(differ)} differ. Give it a row of its own there."
        )
    return {**recipe, "source": published.source}


def pooled(results: list[dict]) -> dict:
    """Return one result of several runs: n, mean and sample standard deviation over the seeds."""
    for field, default in (("backend", None), ("precision", "float32")):  # older results do not name theirs
        if len(found := {result.get(field, default) for result in results}) > 1:
            raise ValueError(f"Runs of one entry must have one {field}. Received: {', '.join(map(str, found))}")
    values = [value for result in results for value in result["values"]]
    seeds = [seed for result in results for seed in result["seeds"]]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"Runs of one entry must have different seeds. Received: {', '.join(map(str, seeds))}")
    hardware = sorted({one for result in results if "hardware" in result for one in result["hardware"].split("; ")})
    commits = [commit for result in results for commit in result.get("commit_changes", [result.get("commit")])]
    return {
        **{key: value for key, value in results[0].items() if key not in ("top5", "top5_std")},  # perhaps of it alone
        **({"hardware": "; ".join(hardware)} if hardware else {}),
        "n": len(values),
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "seeds": seeds,
        "values": values,
        **({"commit_changes": list(dict.fromkeys(commits))} if len(set(commits)) > 1 else {}),
        **_pooled_top5(results),
    }


def _pooled_top5(results: list[dict]) -> dict:
    """Top-5 accuracy as `mean` and `std` are those of top-1, where all runs have it."""
    values = [result["top5"] for result in results if "top5" in result]
    if len(values) < len(results):
        return {}
    return {"top5": statistics.fmean(values), "top5_std": statistics.stdev(values) if len(values) > 1 else None}


def _result(run: Path) -> dict:
    path = run / "result.json"
    if not path.is_file():
        raise ValueError(f"{run} holds no finished run: there is no {path}.")
    return read_result(path.parent, of_run=True)


def measure(row: WeightsInfo, folder: Path, data_dir) -> float:
    """Measures the metric of a row's weights as they are stored."""
    return weights_class(row.variant).open(row, folder / FILE).measure(data_dir).value


def check_stored(row: WeightsInfo, folder: Path, data_dir, expected: float) -> float:
    """Return the metric of the stored weights."""
    actual, metric = measure(row, folder, data_dir), task_of_variant(row.variant).metric
    if not abs(actual - expected) <= metric.rounding:
        raise ValueError(
            f"{row.name}: stored in float16 its test {metric.name} is {actual:.5f}, in float32 {expected:.5f}. "
            "Store it in float32."
        )
    return actual


_FILES = ("curves.csv", "result.json")


def add_search(out: Path, root: Path = ROOT) -> Path:
    """Copy a search's result, curves and figure into a checkout."""
    for file in _FILES:
        if not (out / file).is_file():
            raise ValueError(f"{out} holds no finished search: there is no {out / file}.")
    result = read_json(out / "result.json")
    folder = root / "zoo" / "searches" / result["search"]
    (root / "docs").mkdir(exist_ok=True)
    figure = root / "docs" / f"{result['search']}.png"
    with tempfile.TemporaryDirectory() as drawn:
        draw(result["cells"], out / "curves.csv", Path(drawn) / figure.name)  # what it refuses is not taken
        folder.mkdir(parents=True, exist_ok=True)
        if out.resolve() != folder.resolve():
            for file in _FILES:
                atomic_write(folder / file, functools.partial(shutil.copy, out / file))
        atomic_write(figure, functools.partial(shutil.copy, Path(drawn) / figure.name))
    return folder


def main(argv=None) -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m zoo.release.add", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders of one recipe, or the folder of a search")
    parser.add_argument("--float16", action="store_true", help="store the weights in half precision")
    parser.add_argument("--data", help="folder of the data sets, with --float16 (default: KERAS_HIGHWAY_DATA)")
    args = parser.parse_args(argv)
    try:
        if (args.runs[0] / "curves.csv").is_file():
            print(f"{add_search(args.runs[0])}: added. Now: make tables")
            return
        folder = add(args.runs, args.float16, args.data)
    except (ValueError, OSError) as error:
        parser.exit(2, f"error: {error}\n")
    gates = (
        ""
        if (folder / registry.GATES).exists()
        else f"python -m zoo.release.cards --gates --data DIR {folder.name}, then "
    )
    print(f"{folder}: added. Now: {gates}make tables")


if __name__ == "__main__":
    main()
