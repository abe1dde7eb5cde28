"""The names a weight file depends on, and the parameters that `list` shows.

`python tests/golden/describe.py` rewrites names.json and keras_highway/cli/parameters.json.

Rewrite it only when a network is meant to change: files of trained weights
outlive the code, and a renamed attribute or a moved layer leaves them unread.
"""

import hashlib
import json
import math
import sys
import tempfile
from pathlib import Path

import h5py
import keras

FILE = Path(__file__).with_name("names.json")
PARAMETERS = Path(__file__).parents[2] / "keras_highway" / "cli" / "parameters.json"
IN_FULL = ("mnist10_w16", "mnist10_w32", "highway_fc50_tanh")
BY_HASH = ("highway50", "resnet50", "highway110", "cifar10_19layer")
SHRUNKEN = {
    "mnist10_w16": {},
    "highway110": {"blocks": (2, 1, 1), "widths": (2, 3, 4), "stem_width": 3},
    "highway50": {"blocks": (2, 1, 1, 1), "widths": (1, 2, 3, 4), "stem_width": 3, "classes": 2},
}


def names(model) -> dict:
    """Layer names but the input's, whose number depends on what was built before, and weights in order."""
    layers = [layer.name for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
    return {"layers": " ".join(layers), "weights": [f"{v.path} {_size(v.shape)}" for v in model.weights]}


def _size(shape) -> str:
    return "x".join(map(str, shape))


def hashed(listing: dict) -> dict:
    """The same, with all but the first weights as a hash."""
    weights = listing["weights"]
    digest = hashlib.sha256("\n".join(weights).encode()).hexdigest()
    return {"layers": listing["layers"], "weights": weights[:12], "count": len(weights), "sha256": digest}


def h5_keys(model) -> dict:
    """Key -> shape of every array in the model's `.weights.h5` file."""
    keys = {}

    def visit(key, item):
        if isinstance(item, h5py.Dataset):
            keys[key] = _size(item.shape)

    with tempfile.TemporaryDirectory() as folder:
        model.save_weights(f"{folder}/model.weights.h5")
        with h5py.File(f"{folder}/model.weights.h5") as file:
            file.visititems(visit)
    return keys


def parameters(model) -> int:
    """Number of trainable parameters."""
    return sum(math.prod(v.shape) for v in model.trainable_variables)


def describe(build_variant) -> dict:
    """Everything in names.json; `build_variant(name, **overrides)` gives a model."""
    listings = {name: names(build_variant(name)) for name in IN_FULL}
    listings |= {name: hashed(names(build_variant(name))) for name in BY_HASH}
    return {
        "names": listings,
        "h5": {name: h5_keys(build_variant(name, **changes)) for name, changes in SHRUNKEN.items()},
    }


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from keras_highway._support.keras_models import without_values
    from keras_highway.models.builder import build
    from keras_highway.models.char_lm import build_char_lm
    from keras_highway.specs import override
    from keras_highway.variants import LM_VARIANTS, VARIANTS

    FILE.write_text(json.dumps(describe(lambda name, **k: build(override(VARIANTS[name], **k))), indent=1) + "\n")
    counts = without_values(lambda: {name: parameters(build(spec)) for name, spec in VARIANTS.items()})
    counts |= without_values(lambda: {name: parameters(build_char_lm(spec)) for name, spec in LM_VARIANTS.items()})
    PARAMETERS.write_text(json.dumps(counts, indent=1) + "\n")
