"""`list`, and `train`, whose arguments the training code parses; neither waits for Keras."""

import argparse
import fnmatch
import functools
import json
import shutil
import sys
from pathlib import Path

from keras_highway._support.terminal import did_you_mean, json_text, table
from keras_highway.cli.main import OK, UsageError, size
from keras_highway.tasks import format_metric
from keras_highway.variants import ALL_VARIANTS
from keras_highway.weights import registry
from keras_highway.weights.registry import list_weights


def train(arguments: argparse.Namespace) -> int:
    """Train a recipe; errors exit with the codes of `keras_highway.training.train`."""
    from keras_highway.training import train

    train.main(arguments.arguments)
    return OK


def list_(arguments: argparse.Namespace) -> int:
    """Print a table of weights or of variants, or both as JSON."""
    variants = [_variant(ALL_VARIANTS[name]) for name in fnmatch.filter(ALL_VARIANTS, arguments.pattern)]
    weights = [_weights(known) for known in list_weights(arguments.pattern, details=True)]
    if not variants and not weights:
        hint = did_you_mean(arguments.pattern, [*ALL_VARIANTS, *registry.WEIGHTS])
        raise UsageError(f"No variant and no weights have this name.{hint} Received: {arguments.pattern!r}")
    if arguments.json:
        print(json_text({"variants": variants, "weights": weights}))
    elif arguments.variants or not weights:
        print(_variant_table(variants))
    else:
        print(_weights_table(weights))
    return OK


@functools.cache
def parameters() -> dict[str, int]:
    """Return the stored trainable parameters of every variant with its classifier: counting builds every network."""
    return json.loads(Path(__file__).with_name("parameters.json").read_text("utf-8"))


def _variant(spec) -> dict:
    return {
        "name": spec.name,
        "parameters": parameters()[spec.name],
        "gating": spec.gating,
        "input_shape": list(spec.input_shape),
        "classes": spec.classes,
        "source": spec.source,
    }


def _weights(known) -> dict:
    row, result = registry.WEIGHTS[known["name"]], registry.result(known["name"])
    return {
        "name": row.name,
        "variant": row.variant,
        "data": row.data,
        "result": {key: result[key] for key in ("metric", "mean", "std", "n")} if result else None,
        "parameters": known["parameters"] or _parameters(row),
        "file": registry.where(row),
        "licence": row.licence,
        "data_licence": row.data_licence,
    }


def _parameters(row) -> int | None:
    """Return the variant's parameters, or `None` if the weights changed its form."""
    changed = row.overrides or row.removed or len(row.classes) not in (0, ALL_VARIANTS[row.variant].classes)
    return None if changed else parameters()[row.variant]


def _variant_table(variants) -> str:
    rows = [
        (v["name"], f"{v['parameters']:,}", v["gating"], size(v["input_shape"]), str(v["classes"]), v["source"])
        for v in variants
    ]
    headers = ("variant", "parameters", "gating", "input", "classes", "source")
    lines = table(headers, rows, right=("parameters", "classes")).split("\n")
    if sys.stdout.isatty():  # `--json` has the whole sources
        width = shutil.get_terminal_size().columns
        lines = [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]
    return "\n".join(lines)


def _weights_table(weights) -> str:
    rows = [
        (
            w["name"],
            w["data"],
            format_metric(w["result"], named=True),
            "" if w["parameters"] is None else f"{w['parameters']:,}",
            w["file"],
            w["licence"],
        )
        for w in weights
    ]
    headers = ("weights", "data", "measured on the test set", "parameters", "file", "licence")
    return table(headers, rows, right=("parameters",))
