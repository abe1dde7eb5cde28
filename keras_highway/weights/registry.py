"""The rows of all trained weights, from the folders they lie in, and the table of `list_weights(details=True)`.

A folder of `zoo/weights/` is a weight, `<variant>.<tag>`: its `weights.json` states what the file is, how to feed it
and its hash; its `result.json` states what was measured. Only weights of third parties, without a folder, are a table
here. `zoo/results.csv`, written by `python -m zoo.release.tables`, holds sizes and speed; a wheel has it, too.
"""

import csv
import dataclasses
import fnmatch
import functools
import json
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, overload

from keras_highway._support.files import atomic_write_json
from keras_highway._support.terminal import Notice, did_you_mean, table
from keras_highway.data import transforms
from keras_highway.tasks import task_of
from keras_highway.variants import ALL_VARIANTS, VARIANTS
from keras_highway.weights.info import FILE, ROW, WeightsInfo, described, read_row
from keras_highway.weights.info import GATES as GATES

ZOO_VARIABLE = "KERAS_HIGHWAY_ZOO"
_PACKAGE = Path(__file__).resolve().parents[1]
_CIFAR = "CIFAR: A. Krizhevsky, V. Nair, G. Hinton; no licence is stated"
_IMAGENET = "ImageNet: access under its terms, for non-commercial research"
DATA_LICENCES = {
    "mnist": "MNIST: Y. LeCun, C. Cortes; CC BY-SA 3.0 as commonly stated",
    "cifar10": _CIFAR,
    "cifar100": _CIFAR,
    "imagenet": _IMAGENET,
    "imagenette": f"Imagenette, by fast.ai: photographs of {_IMAGENET}",
    "imagewoof": f"Imagewoof, by fast.ai: photographs of {_IMAGENET}",
    "tiny_imagenet": f"Tiny ImageNet, of Stanford's CS231n: photographs of {_IMAGENET}",
    "ptb": "Penn Treebank, as prepared by T. Mikolov: LDC99T42, under the Linguistic Data Consortium's terms",
}
HUB_TABLE = Path(__file__).with_name("hub.json")  # repository and commit of what is published; `publish` writes it


def language_row(name: str, variant: str, data: str, sha256: str = "") -> WeightsInfo:
    """Return the row of a language model's weights, `<recipe>.<tag>`, of a corpus such as `"ptb"`."""
    licence = DATA_LICENCES.get(data, "")
    return WeightsInfo(
        name=name, variant=variant, data=data, recipe=name.split(".")[0], sha256=sha256, data_licence=licence
    )


def _timm(variant: str, tag: str, top1: float | None) -> WeightsInfo:
    """Return the row of a residual baseline of "ResNet strikes back", procedures A1, A2, A3."""
    return WeightsInfo(
        name=f"{variant}.{tag}",
        variant=variant,
        data="imagenet",
        recipe=f"ResNet strikes back, procedure {tag.upper()}",
        classes=tuple(name for _, name in transforms.imagenet_classes()),
        transform=transforms.IMAGENET,
        sha256="",
        licence="Apache-2.0",
        data_licence=DATA_LICENCES["imagenet"],
        origin="R. Wightman, H. Touvron, H. Jegou: ResNet strikes back (arXiv 2110.00476); published by timm",
        repository=f"timm/{variant}.{tag}_in1k",
        file="model.safetensors",
        metrics={"metric": "top1_as_published", "mean": top1, "std": None, "n": 1} if top1 else {},
    )


# Variant, procedure, published accuracy.
_TIMM = (
    ("resnet50", "a1", 0.804),
    ("resnet50", "a2", 0.798),
    ("resnet50", "a3", None),
    ("resnet101", "a1", 0.815),
    ("resnet101", "a2", 0.813),
    ("resnet101", "a3", None),
    ("resnet152", "a1", 0.820),
    ("resnet152", "a2", 0.818),
    ("resnet152", "a3", None),
)


def _rows() -> Mapping[str, WeightsInfo]:
    """Return all rows by name, read again when a folder, or a row of the user's, has changed."""
    roots = _roots()
    return _read_rows(roots, tuple(map(_changed, (*roots, HUB_TABLE, *_users_rows()))))


def _changed(path: Path) -> int:
    """Return when a file or the list of a folder was changed, 0 if it does not exist."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


@functools.lru_cache(maxsize=4)
def _read_rows(roots: tuple[Path, ...], _changes: tuple[int, ...]) -> Mapping[str, WeightsInfo]:
    """Return all rows by name: of the folders, with their repository on the Hub, then timm's."""
    rows: dict[str, WeightsInfo] = {}
    on_hub = _on_hub()
    for root in roots:
        for path in sorted(root.glob(f"[!.]*/{ROW}")):
            try:
                row = read_row(path)
                if row.name != path.parent.name:
                    raise ValueError(f"{path} is of weights {row.name!r}: a folder has the name of its weights.")
            except ValueError as error:
                if root != _users_root():
                    raise
                warnings.warn(f"{error} Skipped: fix or remove this folder of {ZOO_VARIABLE}.", Notice, stacklevel=2)
                continue
            rows.setdefault(row.name, dataclasses.replace(row, **on_hub.get(row.name, {})))
    theirs = [dataclasses.replace(row, **on_hub.get(row.name, {})) for row in (_timm(*row) for row in _TIMM)]
    made = [_made_of(row, spec) for spec in VARIANTS.values() for row in theirs if row.variant == _baseline(spec)]
    return rows | {row.name: row for row in (*theirs, *made)}


def _on_hub() -> dict[str, dict[str, str]]:
    return json.loads(HUB_TABLE.read_text("utf-8"))


def _baseline(spec: Any) -> str:
    return getattr(spec, "baseline", "")


def _made_of(row: WeightsInfo, spec: Any) -> WeightsInfo:
    """Return the row of the highway net that is made of a ResNet's weights and computes the same function."""
    origin = f"{row.origin}; made a highway net by keras_highway.highway_from_resnet"
    return dataclasses.replace(row, name=f"{spec.name}.{_tag(row)}", variant=spec.name, origin=origin)


class _Registry(Mapping[str, WeightsInfo]):
    """All rows by name, read from their folders on access."""

    def __getitem__(self, name: str) -> WeightsInfo:
        """Read one row, without the others, if it has a folder."""
        folder = next((folder for folder in folders(name) if (folder / ROW).is_file()), None)
        if not name or folder is None or folder.name != name:
            return _rows()[name]
        row = read_row(folder / ROW)
        if row.name != name:
            raise KeyError(name)
        return dataclasses.replace(row, **_on_hub().get(name, {}))

    def __iter__(self):
        return iter(_rows())

    def __len__(self):
        return len(_rows())

    def values(self):
        return _rows().values()


WEIGHTS: Mapping[str, WeightsInfo] = _Registry()


def in_checkout() -> bool:
    """Whether the package runs from a checkout, whose table of repositories can be written."""
    return (_PACKAGE.parent / "pyproject.toml").is_file()


def check_checkout() -> None:
    """Raise a ValueError where the package does not run from a checkout."""
    if not in_checkout():
        raise ValueError(f"{HUB_TABLE} is part of an installed package: repositories are noted in a checkout.")


def note_repository(name: str, entry: Mapping[str, str]) -> None:
    """Write the `repository`, `revision` and `sha256` of a row, or some of them, into the checkout's table."""
    check_checkout()
    on_hub = _on_hub()
    on_hub[name] = {**on_hub.get(name, {}), **entry}
    atomic_write_json(HUB_TABLE, {key: dict(sorted(value.items())) for key, value in sorted(on_hub.items())})
    reread()


def reread() -> None:
    """Forget the rows because the content of a folder has changed; folders that come and go are noticed anyway."""
    _read_rows.cache_clear()


def words() -> set[str]:
    """Return the names, tags and data sets of all rows."""
    return {word for row in WEIGHTS.values() for word in (row.name, _tag(row), row.data) if word}


def _tag(row: WeightsInfo) -> str:
    """Return the part of a row's name after the variant; `""` for a name without a dot."""
    return row.name.partition(".")[2]


def find(weights: str, variant: str = "") -> WeightsInfo:
    """Return the row of weights."""
    if not variant:
        try:
            return WEIGHTS[weights]
        except KeyError:
            own = [row.name for row in WEIGHTS.values() if row.variant == weights]
            raise ValueError(_unknown(weights, own)) from None
    rows = [row for row in WEIGHTS.values() if row.variant == variant]
    for row in rows:
        if weights and weights in (row.name, _tag(row), row.data):
            return row
    text = _missing(weights, variant, [row.name for row in rows])
    if weights in WEIGHTS:
        text = f"Weights {weights!r} are of variant {WEIGHTS[weights].variant!r}, not of {variant!r}. "
        text += f"Use keras_highway.load({weights!r})."
    raise ValueError(text)


def folders(name: str) -> list[Path]:
    """Return the folders of a weights name, in order: the wheel, `KERAS_HIGHWAY_ZOO`, the checkout or current clone."""
    return [root / name for root in _roots()]


def users_names() -> set[str]:
    """Return the names of weights that are in the user's own zoo."""
    return {path.parent.name for path in _users_rows()}


def _users_rows() -> list[Path]:
    root = _users_root()
    return [] if root is None else sorted(root.glob(f"[!.]*/{ROW}"))


def zoo_files(name: str) -> list[Path]:
    """Return the places of a file of the zoo itself: in the wheel, in the checkout."""
    checkout = [_PACKAGE.parent / "zoo" / name] if in_checkout() else []
    return [_PACKAGE / "zoo" / name, *checkout]


def _roots() -> tuple[Path, ...]:
    users = _users_root()
    wheel, *checkout = zoo_files("weights")
    # The package may be installed, and called in a clone: large files are only there. Their hash is in the wheel.
    current = Path("zoo", "weights")
    here = [current.absolute()] if not checkout and current.is_dir() else []
    return (wheel, *([users] if users is not None else []), *checkout, *here)


def _users_root() -> Path | None:
    return Path(os.environ[ZOO_VARIABLE]) if os.environ.get(ZOO_VARIABLE) else None


def result(name: str) -> dict[str, Any]:
    """Return the measurements of weights, `{}` if unknown."""
    return dict(described(WEIGHTS[name]).metrics)


def local_file(row: WeightsInfo) -> Path | None:
    """Return the weight file of a row in one of its folders, unread; None if it is in none."""
    return next((folder / FILE for folder in folders(row.name) if (folder / FILE).is_file()), None)


def file_of(row: WeightsInfo) -> Path:
    """Return `local_file`; raise a `ValueError` if it does not exist."""
    path = local_file(row)
    if path is None:
        looked = ", ".join(map(str, folders(row.name)))
        elsewhere = (
            f"They are on the Hub: `python -m keras_highway fetch {row.name}` downloads them."
            if row.repository
            else f"A wheel leaves large ones out: set {ZOO_VARIABLE} to the folder zoo/weights of a checkout."
        )
        raise ValueError(f"No file of weights {row.name!r}. Looked in {looked}. {elsewhere}")
    return path


def where(row: WeightsInfo) -> str:
    """Return where the file of a row is: `"here"`, `"on the Hub"`, or in neither place, `"in a checkout"`."""
    if local_file(row) is not None:
        return "here"
    return "on the Hub" if row.repository else "in a checkout"


def _unknown(name: str, own: list[str]) -> str:
    """Return the message that refuses an unknown name; `own` are the weights of a variant of that name."""
    if name in ALL_VARIANTS:
        known = f"its weights: {', '.join(own)}." if own else "no weights of it are published."
        return f"{name!r} is a variant; {known} See also keras_highway.create_model. Received: {name!r}"
    return f"Unknown weights.{did_you_mean(name, WEIGHTS)} Known: {', '.join(WEIGHTS)}. Received: {name!r}"


def _missing(weights: str, variant: str, own: list[str]) -> str:
    """Return the message that refuses weights of a variant, with everything that can be used instead."""
    recipe = ALL_VARIANTS[variant].recipe if variant in ALL_VARIANTS else ""
    relatives = _trained_relative(variant)
    if weights == "imagenet" and relatives:  # the default of these builders, not a typing error
        what = f"No ImageNet weights of {variant!r} are published yet."
    else:
        known = [*own, *sorted({WEIGHTS[name].data for name in own} - {""})]
        hint = did_you_mean(weights, [*known, *WEIGHTS])
        unpublished = "" if own else f" No weights of {variant!r} are published yet."
        what = f"Unknown weights for {variant!r}: {weights!r}.{hint}{unpublished}"
    remedies = [
        *relatives,
        *map(_loads, own),
        "random weights: weights=None",
        *([f"train it: python -m keras_highway train {recipe} --data DIR"] if recipe else []),
    ]
    lines = "\n  - ".join(remedies)
    return f"{what} Use instead:\n  - {lines}\nAll weights: keras_highway.list_weights()."


def _loads(name: str) -> str:
    row = WEIGHTS[name]
    absent = (
        f"; the file is in a checkout: set {ZOO_VARIABLE} to its zoo/weights" if where(row) == "in a checkout" else ""
    )
    classes = f", {len(row.classes)} classes" if row.classes else ""
    return f"keras_highway.load({name!r}): trained on {row.data or 'data of its own'}{classes}{absent}"


def _trained_relative(variant: str) -> list[str]:
    """Return the builders of highway nets that are made of the weights of a highway net's residual baseline."""
    baseline = variant.replace("highway", "resnet", 1)
    relatives = [name for name, spec in VARIANTS.items() if _baseline(spec) == baseline != variant]
    return [
        f"keras_highway.HighwayResNet{name.removeprefix('highway_resnet')}(weights={weights!r}): a highway net that "
        f"computes what the trained {baseline} does, with gates to train (see keras_highway.highway_from_resnet)"
        for name in relatives
        for weights in {row.data: None for row in WEIGHTS.values() if row.variant == name}
    ]


RESULTS = "results.csv"
# Name and type of each column.
COLUMNS: Mapping[str, Callable[[str], Any]] = {
    "name": str,
    "variant": str,
    "data": str,
    "top1": float,
    "top5": float,
    "perplexity": float,
    "spread": float,
    "n": int,
    "measured": str,
    "parameters": int,
    "multiply_adds": int,
    "bytes": int,
    "cpu_images_per_second": float,
    "gpu_images_per_second": float,
    "commit": str,
    "command": str,
}
_TABLE_COLUMNS = tuple(
    name for name in COLUMNS if name not in ("measured", "gpu_images_per_second", "commit", "command")
)


class WeightsTable(list[dict[str, Any]]):
    """A list of dicts, one per weight file, that prints as a table; `pandas.DataFrame` takes it.

    Keys: `name`, `variant`, `data`; `top1` and `top5` in percent, or `perplexity`, of the test set; `spread`, their
        standard deviation over `n` seeds; `measured`, `"here"` or `"as published"`; `parameters` and `multiply_adds` of
        one image; `bytes` of the file; images per second of one CPU core's time and of a GPU's; `commit` and `command`
        of the training. Unknown values are `None`.
    """

    def __repr__(self) -> str:
        rows = [tuple(_cell(row[name]) for name in _TABLE_COLUMNS) for row in self]
        return table(_TABLE_COLUMNS, rows, right=_TABLE_COLUMNS[3:])


@overload
def list_weights(pattern: str = "*", details: Literal[False] = False) -> list[str]: ...


@overload
def list_weights(pattern: str = "*", *, details: Literal[True]) -> WeightsTable: ...


@overload
def list_weights(pattern: str, details: Literal[True]) -> WeightsTable: ...


def list_weights(pattern: str = "*", details: bool = False) -> list[str] | WeightsTable:
    """Return the names of all weights, or a table with the size, the accuracy and the speed of each.

    Args:
        pattern: Shell pattern, e.g. `"mnist*"`. Defaults to all.
        details: Bool, whether to return a table, see `keras_highway.weights.registry.WeightsTable`. Defaults to
            `False`.

    Returns:
        A sorted list of names, or a `WeightsTable` in that order.

    Example:

    >>> kh.list_weights("mnist*")
    ['mnist10_w16.tvdn', 'mnist10_w32.tvdn']
    >>> kh.list_weights("mnist*", details=True)[0]["top1"]
    99.45
    """
    names = sorted(fnmatch.filter(WEIGHTS, pattern))
    if not details:
        return names
    known = _known(next((path for path in zoo_files(RESULTS) if path.is_file()), None))
    return WeightsTable(dict(known.get(name) or of_row(WEIGHTS[name])) for name in names)


def of_row(row: WeightsInfo) -> dict[str, Any]:
    """Return the values of a row of the registry under `COLUMNS`; sizes and speed are None."""
    metrics = described(row).metrics
    values = {**dict.fromkeys(COLUMNS), "name": row.name, "variant": row.variant, "data": row.data}
    if not metrics:
        return values
    metric = task_of(dict(metrics)).metric
    top5, std = metrics.get("top5"), metrics.get("std")
    return {
        **values,
        metric.column: round(metric.scale * metrics["mean"], 2),
        "top5": None if top5 is None else round(100.0 * top5, 2),
        "spread": None if std is None else round(metric.scale * std, 2),
        "n": metrics["n"],
        "measured": "as published" if metrics["metric"].endswith("as_published") else "here",
        "commit": metrics.get("commit"),
    }


@functools.cache
def _known(path: Path | None) -> dict[str, dict[str, Any]]:
    """Return the rows of the table of results by name; weights that it does not name are a user's own."""
    if path is None:
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {
            line["name"]: {k: COLUMNS[k](v) if v else None for k, v in line.items()} for line in csv.DictReader(file)
        }


def _cell(value: str | float | None) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
