"""The rows of all trained weights, from the folders they lie in; names are `<variant>.<tag>`.

A folder of `zoo/weights/` is a weight: its `weights.json` states what the file
is, how to feed it and its hash. What was measured (accuracy, n, spread, seeds,
commit, hardware) lives once, in the `result.json` beside it. Only weights that
have no folder here, those of third parties, are a table of this module.
"""

import dataclasses
import fnmatch
import functools
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_highway._support.files import atomic_write_json
from keras_highway._support.schema import Table, Text, read_json
from keras_highway._support.terminal import Notice, did_you_mean
from keras_highway.data import transforms
from keras_highway.variants import ALL_VARIANTS, VARIANTS
from keras_highway.weights.info import FILE, GATE_REPORT, RESULT, ROW, Promised, WeightsInfo, read_row

ZOO_VARIABLE = "KERAS_HIGHWAY_ZOO"
GATES = "gates.json"
_HERE = Path(__file__).resolve().parent
_PACKAGE = _HERE.parent
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
HUB_TABLE = _HERE / "hub.json"  # repository and commit of what is published; `publish` writes it
_HUB_TABLE = Table(Table(Text()))


def language_row(name: str, variant: str, data: str, sha256: str = "") -> WeightsInfo:
    """Return the row of a language model's weights.

    Args:
        name: `<recipe>.<tag>`.
        variant: The architecture.
        data: The corpus, `"ptb"` or another one.
        sha256: Of the file.
    """
    return WeightsInfo(
        name=name,
        variant=variant,
        data=data,
        recipe=name.split(".")[0],
        classes=(),
        transform=None,
        sha256=sha256,
        data_licence=DATA_LICENCES.get(data, ""),
    )


def _timm(variant: str, tag: str, top1: float | None) -> WeightsInfo:
    """Return the residual baselines that the papers compare with: "ResNet strikes back", procedures A1, A2, A3."""
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
    """All rows under their names, read anew when a folder, or a row of a user's, has come, gone or been replaced."""
    roots = _roots()
    return _read_rows(roots, tuple(map(_changed, (*roots, HUB_TABLE, *_users_rows()))))


def _changed(path: Path) -> int:
    """When a file or the list of a folder was changed, 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


@functools.lru_cache(maxsize=4)
def _read_rows(roots: tuple[Path, ...], _changes: tuple[int, ...]) -> Mapping[str, WeightsInfo]:
    """All rows under their names: of the folders, those on the Hub with their repository there, then timm's.

    The first row of a variant is what the name of its data set means:
    weights="imagenet" is A1 for ResNet50.
    """
    rows: dict[str, WeightsInfo] = {}
    on_hub = read_json(HUB_TABLE, _HUB_TABLE)
    for root in roots:
        for path in sorted(root.glob(f"[!.]*/{ROW}")):
            try:
                row = read_row(path)
                if row.name != path.parent.name:
                    raise ValueError(f"{path} is of weights {row.name!r}: a folder has the name of its weights.")
            except ValueError as error:
                if root != _users_root():
                    raise
                warnings.warn(f"{error} Skipped: mend or remove this folder of {ZOO_VARIABLE}.", Notice, stacklevel=2)
                continue
            rows.setdefault(row.name, dataclasses.replace(row, **on_hub.get(row.name, {})))
    theirs = [dataclasses.replace(row, **on_hub.get(row.name, {})) for row in (_timm(*row) for row in _TIMM)]
    made = [_made_of(row, spec) for spec in VARIANTS.values() for row in theirs if row.variant == _baseline(spec)]
    return rows | {row.name: row for row in (*theirs, *made)}


def _baseline(spec) -> str:
    return getattr(spec, "baseline", "")


def _made_of(row: WeightsInfo, spec) -> WeightsInfo:
    """Return the row of the highway net that is made of a ResNet's weights and computes the same function."""
    origin = f"{row.origin}; made a highway net by keras_highway.highway_from_resnet"
    return dataclasses.replace(row, name=f"{spec.name}.{_tag(row)}", variant=spec.name, origin=origin)


class _Registry(Mapping[str, WeightsInfo]):
    """All rows by name, read from their folders on access."""

    def __getitem__(self, name):
        return _rows()[name]

    def __iter__(self):
        return iter(_rows())

    def __len__(self):
        return len(_rows())

    def values(self):
        return _rows().values()


WEIGHTS: Mapping[str, WeightsInfo] = _Registry()


def in_checkout() -> bool:
    """Whether the package runs from a checkout, whose table of what is on the Hub can be written."""
    return (HUB_TABLE.parents[2] / "pyproject.toml").is_file()


def check_checkout() -> None:
    """Raise a ValueError where the package does not run from a checkout, whose table could be written."""
    if not in_checkout():
        raise ValueError(f"{HUB_TABLE} is part of an installed package: repositories are noted in a checkout.")


def note_repository(name: str, entry: Mapping[str, str]) -> None:
    """Write into the checkout's table where a row's file is on the Hub.

    Args:
        name: Name of the row.
        entry: Its `repository`, `revision` and `sha256`, or some of them.

    Raises:
        ValueError: If the package does not run from a checkout.
    """
    check_checkout()
    on_hub = read_json(HUB_TABLE, _HUB_TABLE)
    on_hub[name] = {**on_hub.get(name, {}), **entry}
    atomic_write_json(HUB_TABLE, {key: dict(sorted(value.items())) for key, value in sorted(on_hub.items())})
    reread()


def reread() -> None:
    """Forgets the rows: what folders hold has changed. Folders that come and go are seen without."""
    _read_rows.cache_clear()


def list_weights(pattern: str = "*") -> list[str]:
    """Return the names of all weights that match a shell pattern, e.g. `"mnist*"`."""
    return sorted(fnmatch.filter(WEIGHTS, pattern))


def words() -> set[str]:
    """Return what rows go by: their names, tags and data sets."""
    return {word for row in WEIGHTS.values() for word in (row.name, _tag(row), row.data) if word}


def _tag(row: WeightsInfo) -> str:
    """Return the part of a row's name after the variant; `""` for a name without a dot."""
    return row.name.partition(".")[2]


def find(weights: str, variant: str) -> WeightsInfo:
    """Return the row of a variant's weights.

    Args:
        weights: A name (`"mnist10_w16.tvdn"`), a tag (`"tvdn"`) or a data set
            (`"mnist"`).
        variant: The architecture.

    Raises:
        ValueError: If there is none, or it is of another architecture.
    """
    rows = [r for r in WEIGHTS.values() if r.variant == variant]
    for row in rows:
        if weights and weights in (row.name, _tag(row), row.data):
            return row
    if weights in WEIGHTS:
        raise ValueError(
            f"Weights {weights!r} are of variant {WEIGHTS[weights].variant!r}, not of {variant!r}. "
            f"Use keras_highway.load({weights!r})."
        )
    raise ValueError(_missing(weights, variant, [r.name for r in rows]))


def get(name: str) -> WeightsInfo:
    """Return the row of a weights name.

    Raises:
        ValueError: If there is none, with suggestions; of a variant's name,
            with its weights.
    """
    if name in WEIGHTS:
        return WEIGHTS[name]
    if name in ALL_VARIANTS:
        raise ValueError(_of_a_variant(name, [row.name for row in WEIGHTS.values() if row.variant == name]))
    hint = did_you_mean(name, WEIGHTS)
    raise ValueError(f"Unknown weights.{hint} Known: {', '.join(WEIGHTS)}. Received: {name!r}")


def folders(name: str) -> list[Path]:
    """Where the files of a weights name may lie, in order: the wheel, `KERAS_HIGHWAY_ZOO`, the checkout."""
    return [root / name for root in _roots()]


def users_names() -> set[str]:
    """Return the names of weights that are in the user's own zoo."""
    return {path.parent.name for path in _users_rows()}


def _users_rows() -> list[Path]:
    root = _users_root()
    return [] if root is None else sorted(root.glob(f"[!.]*/{ROW}"))


def zoo_files(name: str) -> list[Path]:
    """Where a file of the zoo's own may lie: in the wheel, in the checkout."""
    checkout = [_PACKAGE.parent / "zoo" / name] if in_checkout() else []
    return [_PACKAGE / "zoo" / name, *checkout]


def _roots() -> tuple[Path, ...]:
    roots, users = [_PACKAGE / "zoo" / "weights"], _users_root()
    if users is not None:
        roots.append(users)
    if (_PACKAGE.parent / "pyproject.toml").is_file():  # a checkout; in site-packages, `zoo` could be another package's
        roots.append(_PACKAGE.parent / "zoo" / "weights")
    return tuple(roots)


def _users_root() -> Path | None:
    return Path(os.environ[ZOO_VARIABLE]) if os.environ.get(ZOO_VARIABLE) else None


def local_file(row: WeightsInfo) -> Path | None:
    """Return the weight file of a row in one of its folders, unread; None if it is in none."""
    return next((folder / FILE for folder in folders(row.name) if (folder / FILE).is_file()), None)


def promised(row: WeightsInfo) -> Promised:
    """Return what the bytes of a row's file must hash to."""
    return Promised(row.sha256, f"of {row.name!r}", "Remove it or reinstall keras_highway.")


def file_of(row: WeightsInfo) -> Path:
    """As `local_file`, for rows whose file must be there.

    Raises:
        ValueError: If it is nowhere.
    """
    path = local_file(row)
    if path is None:
        looked = ", ".join(map(str, folders(row.name)))
        elsewhere = (
            f"They are on the Hub: `python -m keras_highway fetch {row.name}` downloads them."
            if row.repository
            else f"They are not on the Hub, and a wheel leaves large ones out: set {ZOO_VARIABLE} to the folder "
            "zoo/weights of a checkout. In a checkout, put the file back."
        )
        raise ValueError(f"No file of weights {row.name!r}. Looked in {looked}. {elsewhere}")
    return path


def where(row: WeightsInfo) -> str:
    """Return where the file of a row is: `"here"`, `"on the Hub"`, or in neither place, `"in a checkout"`."""
    if local_file(row) is not None:
        return "here"
    return "on the Hub" if row.repository else "in a checkout"


def result(name: str) -> dict[str, Any]:
    """Return what was measured of weights: the `result.json` beside them, `{}` where there is none."""
    return _beside(name, "result.json", RESULT)


def described(row: WeightsInfo) -> WeightsInfo:
    """Return a row with what was measured, where it is recorded beside the file; not for others of its name."""
    known = _rows().get(row.name)
    if known is None or known.sha256 != row.sha256:
        return row
    measured, gates = result(row.name), _beside(row.name, GATES, GATE_REPORT)
    if gates.get("sha256") != row.sha256:
        gates = {}  # measured of weights that have been replaced since
    return dataclasses.replace(row, metrics=measured or row.metrics, gate_report=gates or row.gate_report)


def _beside(name, file, schema) -> dict[str, Any]:
    """Read a JSON file next to the row of weights, in the same folder."""
    folder = next((folder for folder in folders(name) if (folder / ROW).is_file()), None)
    return read_json(folder / file, schema) if folder is not None and (folder / file).is_file() else {}


def _of_a_variant(variant, own) -> str:
    """Return the message that refuses a variant's name as the name of weights."""
    known = (
        f"its weights: {', '.join(own)}." if own else "no weights of it are published: see keras_highway.create_model."
    )
    return f"{variant!r} is a variant; {known} Received: {variant!r}"


def _missing(weights, variant, own) -> str:
    spec = ALL_VARIANTS.get(variant)
    recipe = spec.recipe if spec else ""
    relatives = _trained_relative(variant)
    if weights == "imagenet" and relatives:  # the default of these builders: nobody mistyped it
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
    return f"{what} What there is instead:\n  - {lines}\nAll weights: keras_highway.list_weights()."


def _loads(name) -> str:
    row = WEIGHTS[name]
    absent = (
        f"; the file is in a checkout: set {ZOO_VARIABLE} to its zoo/weights" if where(row) == "in a checkout" else ""
    )
    classes = f", {len(row.classes)} classes" if row.classes else ""
    return f"keras_highway.load({name!r}): trained on {row.data or 'data of its own'}{classes}{absent}"


def _trained_relative(variant) -> list[str]:
    """For a highway net whose residual baseline has weights: the highway net that is made of them."""
    baseline = variant.replace("highway", "resnet", 1)
    relatives = [name for name, spec in VARIANTS.items() if _baseline(spec) == baseline != variant]
    return [
        f"keras_highway.HighwayResNet{name.removeprefix('highway_resnet')}(weights={weights!r}): a highway net that "
        f"computes what the trained {baseline} does, with gates to train (see keras_highway.highway_from_resnet)"
        for name in relatives
        for weights in {row.data: None for row in WEIGHTS.values() if row.variant == name}
    ]
