"""Small nets of every family with weights away from their start: nothing in them is trivial, nothing saturates."""

import sys
from dataclasses import replace

import keras
import numpy as np

from keras_highway.models.builder import build
from keras_highway.specs import override
from keras_highway.variants import LM_VARIANTS, VARIANTS

_STAGE = replace(VARIANTS["mnist10_w16"].stages[0], filters=4, highways=(3, 3, 3))
MINIATURES = {
    "conv_net": override(VARIANTS["highway110"], blocks=(3, 2), widths=(4, 6), stem_width=4, gate_bias=-1.0),
    "bottleneck": override(VARIANTS["highway50"], blocks=(3, 2), widths=(2, 3), stem_width=4, classes=5),
    "conv_stack": override(VARIANTS["mnist10_w16"], stages=[_STAGE]),
    "dense_stack": override(VARIANTS["highway_fc10"], depth=4, units=6),
}


def replace_variants(monkeypatch, variants):
    """Has the whole package know these image nets instead of its own."""
    for module in [module for name, module in sys.modules.items() if name.startswith("keras_highway.")]:
        for table, value in (("VARIANTS", variants), ("ALL_VARIANTS", {**variants, **LM_VARIANTS})):
            if hasattr(module, table):
                monkeypatch.setattr(module, table, value)


def numpy(tensor):
    """A tensor of any backend as a NumPy array."""
    return keras.ops.convert_to_numpy(tensor)


def miniature(family, *, name=None, dtype=None, include_top=True, input_shape=None, **changes):
    """Builds a miniature that gives logits, with some fields of its spec changed and its weights moved."""
    model = build(
        override(MINIATURES[family], **changes),
        name=name,
        dtype=dtype,
        include_top=include_top,
        input_shape=input_shape,
        classifier_activation=None,
    )
    rng = np.random.default_rng(0)
    for weight in model.weights:
        low = 0.0 if weight.name == "moving_variance" else -0.2
        weight.assign(numpy(weight) + rng.uniform(low, 0.2, weight.shape))
    return model


def batch(model, n=2):
    """Random images of the model's input shape; 32 pixels where it takes any size."""
    shape = [s or 32 for s in model.input_shape[1:]]
    return np.random.default_rng(1).random((n, *shape), "float32")
