"""One row a trained weight file; names are `<variant>.<tag>`.

Rows say what a file is and how to feed it. What was measured (accuracy, n,
spread, seeds, commit, hardware) lives once, in the `result.json` beside it.
"""

import dataclasses
import fnmatch
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from keras_highway._support.files import sha256_of
from keras_highway._support.suggest import did_you_mean
from keras_highway.data import transforms
from keras_highway.variants import LM_VARIANTS, VARIANTS
from keras_highway.weights.info import FILE, WeightsInfo

ZOO_VARIABLE = "KERAS_HIGHWAY_ZOO"
GATES = "gates.json"
_HERE = Path(__file__).resolve().parent
_PACKAGE = _HERE.parent
_TREEBANK = "Penn Treebank, as prepared by T. Mikolov: LDC99T42, under the Linguistic Data Consortium's terms"
PLACES = _HERE / "hub.json"  # repository and commit of what is published; `publish` writes it


def _mnist(variant: str, sha256: str) -> WeightsInfo:
    return WeightsInfo(
        name=f"{variant}.tvdn",
        variant=variant,
        data="mnist",
        recipe=variant,
        classes=tuple("0123456789"),
        transform=transforms.MNIST,
        sha256=sha256,
        data_licence="MNIST: Y. LeCun, C. Cortes; CC BY-SA 3.0 as commonly stated",
    )


def _cifar(variant: str, tag: str, data: str, transform: transforms.Transform, sha256: str) -> WeightsInfo:
    return WeightsInfo(
        name=f"{variant}.{tag}",
        variant=variant,
        data=data,
        recipe=variant,
        classes=transforms.CLASSES[data],
        transform=transform,
        sha256=sha256,
        data_licence="CIFAR: A. Krizhevsky, V. Nair, G. Hinton; no licence is stated",
    )


def language_row(name: str, variant: str, data: str, sha256: str = "") -> WeightsInfo:
    """Returns the row of a language model's weights.

    Args:
        name: `<recipe>.<tag>`.
        variant: The architecture.
        data: The corpus, `"ptb"` or anybody's own.
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
        data_licence=_TREEBANK if data == "ptb" else "",
    )


def _timm(variant: str, tag: str, top1: float | None) -> WeightsInfo:
    """The residual baselines that the papers compare with: "ResNet strikes back", procedures A1, A2, A3."""
    return WeightsInfo(
        name=f"{variant}.{tag}",
        variant=variant,
        data="imagenet",
        recipe=f"ResNet strikes back, procedure {tag.upper()}",
        classes=tuple(name for _, name in transforms.imagenet_classes()),
        transform=transforms.IMAGENET,
        sha256="",
        data_licence="ImageNet: access under its terms, for non-commercial research",
        origin="R. Wightman, H. Touvron, H. Jegou: ResNet strikes back (arXiv 2110.00476); published by timm",
        repository=f"timm/{variant}.{tag}_in1k",
        file="model.safetensors",
        metrics={"metric": "top1_as_published", "mean": top1, "std": None, "n": 1} if top1 else {},
    )


def _ours(rows) -> dict[str, WeightsInfo]:
    """Rows under their names, those that are on the Hub with their place there."""
    places = json.loads(PLACES.read_text("utf-8"))
    return {row.name: dataclasses.replace(row, **places.get(row.name, {})) for row in rows}


_SHA256 = json.loads((_HERE / "sha256.json").read_text("utf-8"))
# The first row of a variant is what the name of its data set means: weights="imagenet" is A1 for ResNet50.
WEIGHTS: Mapping[str, WeightsInfo] = MappingProxyType(
    _ours(
        (
            _mnist("mnist10_w16", _SHA256["mnist10_w16.tvdn"]),
            _mnist("mnist10_w32", _SHA256["mnist10_w32.tvdn"]),
            _mnist("highway_fc50_tanh", _SHA256["highway_fc50_tanh.tvdn"]),
            _cifar(
                "highway_fc50_cifar100",
                "tvdn",
                "cifar100",
                transforms.CIFAR,
                _SHA256["highway_fc50_cifar100.tvdn"],
            ),
            *(
                language_row(f"{variant}.ptb", variant, "ptb", _SHA256[f"{variant}.ptb"])
                for variant in ("charlm_large_coupled", "charlm_small_coupled")
            ),
            _timm("resnet50", "a1", 0.804),
            _timm("resnet50", "a2", 0.798),
            _timm("resnet50", "a3", None),
            _timm("resnet101", "a1", 0.815),
            _timm("resnet101", "a2", 0.813),
            _timm("resnet101", "a3", None),
            _timm("resnet152", "a1", 0.820),
            _timm("resnet152", "a2", 0.818),
            _timm("resnet152", "a3", None),
        )
    )
)


def list_weights(pattern: str = "*") -> list[str]:
    """Returns the names of all weights that match a shell pattern, e.g. `"mnist*"`."""
    return sorted(fnmatch.filter(WEIGHTS, pattern))


def words() -> set[str]:
    """Returns what rows go by: their names, tags and data sets."""
    return {word for row in WEIGHTS.values() for word in (row.name, row.name.split(".", 1)[1], row.data)}


def find(weights: str, variant: str) -> WeightsInfo:
    """Returns the row of a variant's weights.

    Args:
        weights: A name (`"mnist10_w16.tvdn"`), a tag (`"tvdn"`) or a data set
            (`"mnist"`).
        variant: The architecture.

    Raises:
        ValueError: If there is none, or it is of another architecture.
    """
    rows = [r for r in WEIGHTS.values() if r.variant == variant]
    for row in rows:
        if weights in (row.name, row.name.split(".", 1)[1], row.data):
            return row
    if weights in WEIGHTS:
        raise ValueError(
            f"Weights {weights!r} are of variant {WEIGHTS[weights].variant!r}, not of {variant!r}. "
            f"Use keras_highway.load({weights!r})."
        )
    raise ValueError(_missing(weights, variant, [r.name for r in rows]))


def get(name: str) -> WeightsInfo:
    """Returns the row of a weights name.

    Raises:
        ValueError: If there is none, with suggestions.
    """
    if name in WEIGHTS:
        return WEIGHTS[name]
    hint = did_you_mean(name, WEIGHTS)
    raise ValueError(f"Unknown weights.{hint} Known: {', '.join(WEIGHTS)}. Received: {name!r}")


def folders(name: str) -> list[Path]:
    """Where the files of a weights name may lie, in order: the wheel, `KERAS_HIGHWAY_ZOO`, the checkout."""
    roots = [_PACKAGE / "zoo" / "weights"]
    if os.environ.get(ZOO_VARIABLE):
        roots.append(Path(os.environ[ZOO_VARIABLE]))
    if (_PACKAGE.parent / "pyproject.toml").is_file():  # a checkout; in site-packages, `zoo` would be anybody's
        roots.append(_PACKAGE.parent / "zoo" / "weights")
    return [root / name for root in roots]


def local_file(row: WeightsInfo) -> Path | None:
    """Returns the weight file of a row in one of its folders, its hash checked; None if it is in none.

    Raises:
        ValueError: If there is a file and it is not the one the row describes.
    """
    for folder in folders(row.name):
        path = folder / FILE
        if path.is_file():
            actual = sha256_of(path)
            if row.sha256 and actual != row.sha256:
                raise ValueError(
                    f"{path} is damaged or altered: its sha256 is {actual}, that of {row.name!r} is {row.sha256}. "
                    "Remove it or reinstall keras_highway."
                )
            return path
    return None


def file_of(row: WeightsInfo) -> Path:
    """As `local_file`, for rows whose file must be there.

    Raises:
        ValueError: If it is nowhere, or is not the file the row describes.
    """
    path = local_file(row)
    if path is None:
        looked = ", ".join(map(str, folders(row.name)))
        raise ValueError(f"No file of weights {row.name!r}. Looked in {looked}, and they are not on the Hub.")
    return path


def result(name: str) -> dict[str, Any]:
    """Returns what was measured of weights: the `result.json` beside them, `{}` where there is none."""
    return _beside(name, "result.json")


def described(row: WeightsInfo) -> WeightsInfo:
    """Returns a row with what was measured, where it is recorded beside the file."""
    measured, gates = result(row.name), _beside(row.name, GATES)
    if gates.get("sha256") != row.sha256:
        gates = {}  # measured of weights that have been replaced since
    return dataclasses.replace(row, metrics=measured or row.metrics, gate_report=gates or row.gate_report)


def _beside(name, file) -> dict[str, Any]:
    for folder in folders(name):
        path = folder / file
        if path.is_file():
            return json.loads(path.read_text("utf-8"))
    return {}


def _missing(weights, variant, own) -> str:
    spec = {**VARIANTS, **LM_VARIANTS}.get(variant)
    recipe = spec.recipe if spec else ""
    known = [*own, *sorted({WEIGHTS[name].data for name in own})]
    hint = did_you_mean(weights, [*known, *WEIGHTS])
    train = f"To train this variant, in a checkout: python -m training.train {recipe} --data DIR." if recipe else ""
    have = f"Weights of {variant!r}: {', '.join(own)}." if own else f"No weights of {variant!r} are published yet."
    return (
        f"Unknown weights for {variant!r}: {weights!r}.{hint} {have} All weights: {', '.join(WEIGHTS)}. "
        f"For random weights pass weights=None. {train}{_baseline(variant)}"
    )


def _baseline(variant) -> str:
    """What there is instead for a highway net whose residual baseline has weights."""
    baseline = variant.replace("highway", "resnet", 1)
    if baseline == variant or not any(row.variant == baseline for row in WEIGHTS.values()):
        return ""
    return (
        f" Or start from a trained ResNet: keras_highway.highway_from_resnet(keras_highway.create_model({baseline!r}, "
        "'imagenet')) computes what it does, with gates to train."
    )
