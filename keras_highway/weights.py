"""One row a trained weight file; names are `<variant>.<tag>`.

Rows say what a file is and how to feed it. What was measured (accuracy, n,
spread, seeds, commit, hardware) lives once, in the `result.json` beside it.
"""

import fnmatch
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from keras_highway import transforms, weights_file
from keras_highway.near import did_you_mean
from keras_highway.transforms import Transform

ZOO_VARIABLE = "KERAS_HIGHWAY_ZOO"
FILE = "model.weights.h5"


@dataclass(frozen=True, kw_only=True)
class WeightsRow:
    """A trained weight file.

    Attributes:
        name: `<variant>.<tag>`, stable.
        variant: The architecture.
        data: The data set it was trained on.
        recipe: The recipe that trained it.
        classes: Names of the classes, in order.
        transform: What its inputs must go through.
        sha256: Of the file.
        licence: Of the weights.
        data_licence: What is known of the data set's terms.
    """

    name: str
    variant: str
    data: str
    recipe: str
    classes: tuple[str, ...]
    transform: Transform
    sha256: str
    licence: str = "Apache-2.0"
    data_licence: str = ""


def _mnist(variant: str, sha256: str) -> WeightsRow:
    return WeightsRow(
        name=f"{variant}.tvdn",
        variant=variant,
        data="mnist",
        recipe=variant,
        classes=tuple("0123456789"),
        transform=transforms.MNIST,
        sha256=sha256,
        data_licence="MNIST: Y. LeCun, C. Cortes; CC BY-SA 3.0 as commonly stated",
    )


_SHA256 = json.loads((Path(__file__).parent / "weights_sha256.json").read_text("utf-8"))
WEIGHTS: Mapping[str, WeightsRow] = MappingProxyType(
    {
        row.name: row
        for row in (
            _mnist("mnist10_w16", _SHA256["mnist10_w16.tvdn"]),
            _mnist("mnist10_w32", _SHA256["mnist10_w32.tvdn"]),
            _mnist("highway_fc50_tanh", _SHA256["highway_fc50_tanh.tvdn"]),
        )
    }
)


def list_weights(pattern: str = "*") -> list[str]:
    """Returns the names of all weights that match a shell pattern, e.g. `"mnist*"`."""
    return sorted(fnmatch.filter(WEIGHTS, pattern))


def find(weights: str, variant: str, recipe: str = "") -> WeightsRow:
    """Returns the row of a variant's weights.

    Args:
        weights: A name (`"mnist10_w16.tvdn"`), a tag (`"tvdn"`) or a data set
            (`"mnist"`).
        variant: The architecture.
        recipe: The recipe that trains it, for the message.

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
    raise ValueError(_missing(weights, variant, recipe, [r.name for r in rows]))


def get(name: str) -> WeightsRow:
    """Returns the row of a weights name.

    Raises:
        ValueError: If there is none, with near names.
    """
    if name in WEIGHTS:
        return WEIGHTS[name]
    hint = did_you_mean(name, WEIGHTS)
    raise ValueError(f"Unknown weights.{hint} Known: {', '.join(WEIGHTS)}. Received: {name!r}")


def folders(name: str) -> list[Path]:
    """Where the files of a weights name may lie, in order: the wheel, `KERAS_HIGHWAY_ZOO`, the checkout."""
    package = Path(__file__).resolve().parent
    roots = [package / "zoo"]
    if (package.parent / "pyproject.toml").is_file():  # a checkout; in site-packages, `zoo` would be anybody's
        roots.append(package.parent / "zoo")
    if os.environ.get(ZOO_VARIABLE):
        roots.insert(1, Path(os.environ[ZOO_VARIABLE]))
    return [root / name for root in roots]


def file_of(row: WeightsRow) -> Path:
    """Returns the weight file of a row, its hash checked.

    Raises:
        ValueError: If it is nowhere, or is not the file the row describes.
    """
    looked = folders(row.name)
    for folder in looked:
        path = folder / FILE
        if path.is_file():
            found = weights_file.sha256(path)
            if found != row.sha256:
                raise ValueError(
                    f"{path} is damaged or altered: its sha256 is {found}, that of {row.name!r} is {row.sha256}. "
                    "Remove it or reinstall keras_highway."
                )
            return path
    raise ValueError(f"No file of weights {row.name!r}. Looked in {', '.join(map(str, looked))}.")


def result(name: str) -> dict[str, Any]:
    """Returns what was measured of weights: the `result.json` beside them, `{}` where there is none."""
    for folder in folders(name):
        path = folder / "result.json"
        if path.is_file():
            return json.loads(path.read_text("utf-8"))
    return {}


def _missing(weights, variant, recipe, own) -> str:
    known = [*own, *sorted({WEIGHTS[name].data for name in own})]
    hint = did_you_mean(weights, [*known, *WEIGHTS])
    train = f"To train this variant, in a checkout: python -m training.train {recipe} --data DIR." if recipe else ""
    have = f"Weights of {variant!r}: {', '.join(own)}." if own else f"No weights of {variant!r} are published yet."
    return (
        f"Unknown weights for {variant!r}: {weights!r}.{hint} {have} All weights: {', '.join(WEIGHTS)}. "
        f"For random weights pass weights=None. {train}"
    )
