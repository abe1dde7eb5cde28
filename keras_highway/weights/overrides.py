"""The form of a network that is not a variant's own: overrides of its spec, blocks that were left out."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from keras_highway._support.keras_models import without_values
from keras_highway.analysis.lesions import without
from keras_highway.models.builder import build
from keras_highway.specs import ConvStage, NetSpec, coerced, to_dict

# Fields that state how a network is trained, not what it computes: no weight file names them.
_OF_TRAINING = ("remat",)


def from_json_values(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return overrides that were JSON values as `specs.override` takes them: `stages` of lists are stages.

    Raises:
        ValueError: If a stage is malformed.
    """
    values = dict(overrides)
    if isinstance(values.get("stages"), list | tuple):
        values["stages"] = tuple(_stage(stage) for stage in values["stages"])
    return values


def to_json_values(spec: NetSpec, row: NetSpec) -> dict[str, Any]:
    """Return the fields of a spec that differ from the variant's, as JSON values; none that training alone knows."""
    own, known = to_dict(spec), to_dict(row)
    changed = {name: value for name, value in own.items() if value != known[name]}
    return {name: _listed(value) for name, value in changed.items() if name not in _OF_TRAINING}


def trimmed(model: keras.Model, removed: Sequence[str]) -> keras.Model:
    """Return a model without some of its blocks; the model itself where none are named.

    Raises:
        ValueError: If there are no such blocks, or they cannot go.
    """
    return without(model, removed) if removed else model


def shapes_of_form(spec: NetSpec, classes: int | None) -> Counter:
    """Return how often each shape is among the weights of a spec's network, without memory for them."""
    return Counter(tuple(w.shape) for w in without_values(lambda: build(spec, classes=classes).weights))


def _stage(values) -> ConvStage:
    if isinstance(values, ConvStage):
        return values
    if not isinstance(values, Mapping):
        raise ValueError(f"`stages` must be stages, tables of numbers. Received: {values!r}")
    stage = ConvStage(highways=())
    if unknown := values.keys() - {f.name for f in dataclasses.fields(stage)}:
        raise ValueError(f"Unknown field of a stage: {sorted(unknown)[0]!r}.")
    return coerced(stage, "a stage", **values)


def _listed(value):
    """JSON has lists alone."""
    if isinstance(value, Mapping):
        return {name: _listed(item) for name, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value
