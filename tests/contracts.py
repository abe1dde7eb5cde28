"""Contracts of every layer and network, as functions that any test can apply."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
from keras import ops
from keras.src.testing import TestCase

from keras_highway.layers import HighwayDenseStack
from keras_highway.models.builder import build
from keras_highway.specs import ConvNetSpec, ConvStackSpec, DenseStackSpec, override
from keras_highway.variants import VARIANTS

# Tiny models spend their time in XLA's compiler: three times less of it without optimization.
QUICK_XLA = "--xla_backend_optimization_level=0"
# XLA compiles every new shape, so JAX gets fewer of Hypothesis's examples.
EXAMPLES = 6 if keras.backend.backend() == "jax" else 30

# TensorFlow's C++ code writes them before it reads a log level, and where it finds no GPU.
NOTICE = re.compile(
    r"WARNING: All log messages before absl|[IWE]0000 .*(port|cuda\w*|gpu_device|tf_tfl_\w+)\.cc:|INFO: Created"
)

# Fields that state the origin of a row and do not change its network.
IDENTITY = {"name": "", "source": "", "recipe": "", "published_parameters": None, "printed_parameters": ""}


def array(*shape, seed=0) -> np.ndarray:
    """Standard normal float32 values, the same for the same shape and seed."""
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def to_numpy(x) -> np.ndarray:
    """Any tensor as a NumPy array; bfloat16 as float32."""
    return np.asarray(ops.convert_to_numpy(ops.cast(x, "float32")))


def gradients(f, *args) -> list[np.ndarray]:
    """Gradients of the scalar `f(*args)` by each argument, zeros where it does not depend on it."""
    args = [ops.convert_to_tensor(a) for a in args]
    if keras.backend.backend() == "jax":
        import jax

        return [np.asarray(g) for g in jax.grad(f, argnums=tuple(range(len(args))))(*args)]
    if keras.backend.backend() == "torch":
        import torch

        args = [a.detach().requires_grad_() for a in args]
        return [to_numpy(g) for g in torch.autograd.grad(f(*args), args, allow_unused=True, materialize_grads=True)]
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(args)
        y = f(*args)
    return [np.asarray(g) for g in tape.gradient(y, args, unconnected_gradients=tf.UnconnectedGradients.ZERO)]


def check_layer(
    layer_class, init_kwargs, input_shape, *, gate_shape=None, gated=True, train=True, reload=True, seed=0
) -> keras.layers.Layer:
    """Apply the whole contract to a layer: config, shapes, dtypes, mixed precision, training, `.keras`; return it.

    `gate_shape` is the second input's, for `gate="tied"`; `gated` states that the output has the skip dtype.
    """
    shapes = [input_shape] if gate_shape is None else [input_shape, gate_shape]
    xs = [ops.convert_to_tensor(array(*shape, seed=seed + i)) for i, shape in enumerate(shapes)]
    layer = layer_class(**init_kwargs)
    if gate_shape is None:
        check_as_keras_does(layer_class, init_kwargs, input_shape)
    else:
        check_config(layer)
    model = check_specs(layer, xs)
    check_mixed_precision(layer, init_kwargs, xs, gated)
    if train and layer.trainable_variables:
        check_training(model, xs, model(_packed(xs), training=False))
    if reload:
        check_round_trip(model, xs)
    return layer


def check_as_keras_does(layer_class, init_kwargs, input_shape) -> None:
    """Keras's own test of its layers: config, `build`, variables, and the dtypes announced under mixed precision."""
    TestCase().run_layer_test(layer_class, init_kwargs, input_shape=input_shape, run_training_check=False)


def check_config(layer) -> None:
    """The config is plain JSON and a layer made from it has the same one."""
    config = layer.get_config()
    copy = type(layer).from_config(config)
    assert copy.get_config() == config
    written = keras.saving.serialize_keras_object(layer)
    again = keras.saving.deserialize_keras_object(json.loads(json.dumps(written)))
    assert again.get_config() == config


def check_specs(layer, xs) -> keras.Model:
    """Symbolic shape and dtype, `compute_output_shape` and the eager output agree. Returns a model of the layer."""
    inputs = [keras.Input(x.shape[1:]) for x in xs]
    outputs = layer(inputs[0], **_gate_kwarg(inputs))
    y = _apply(layer, xs)
    assert keras.backend.standardize_dtype(y.dtype) == outputs.dtype
    assert tuple(layer.compute_output_shape(xs[0].shape)) == tuple(y.shape)
    # A layer may drop the batch axis to 1 (ChannelGate); where it keeps it, the symbolic one is unknown.
    assert all(a in (b, None) for a, b in zip(outputs.shape, y.shape, strict=True))
    assert outputs.shape[1:] == tuple(y.shape)[1:]
    return keras.Model(_packed(inputs), outputs)


def check_mixed_precision(layer, init_kwargs, xs, gated=True) -> None:
    """Under mixed_bfloat16 sublayers compute in bfloat16 and a gated block still gives its skip dtype."""
    mixed = type(layer)(**{**init_kwargs, "dtype": "mixed_bfloat16"})
    y = _apply(mixed, xs)
    expected = init_kwargs.get("skip_dtype", "float32") if gated else None
    if expected:
        assert keras.backend.standardize_dtype(y.dtype) == expected
        assert (mixed.transform.compute_dtype, mixed.transform.variable_dtype) == ("bfloat16", "float32")
    for sub in mixed._flatten_layers(include_self=False):
        # Only what belongs to the skip stream keeps its dtype.
        on_skip = sub.name == "drop_path" or type(sub).__name__ == "ZeroPadProjection"
        assert sub.compute_dtype == (expected if on_skip else "bfloat16"), sub.path
    assert all(keras.backend.standardize_dtype(v.dtype) == "float32" for v in mixed.trainable_variables)
    mixed.set_weights(layer.get_weights())
    np.testing.assert_allclose(to_numpy(_apply(mixed, xs)), to_numpy(_apply(layer, xs)), rtol=0.1, atol=0.1)
    if gated and "skip_dtype" not in init_kwargs:
        low = type(layer)(**{**init_kwargs, "dtype": "mixed_bfloat16", "skip_dtype": "bfloat16"})
        outputs = low(keras.Input(xs[0].shape[1:]), **_gate_kwarg([keras.Input(x.shape[1:]) for x in xs]))
        assert outputs.dtype == "bfloat16"


def check_training(model, xs, like, steps=3) -> None:
    """A few steps change every trainable weight and leave everything finite.

    Three, since a transform that starts at zero ("zeroBN") lets no gradient
    through at the first.
    """
    target = array(*like.shape, seed=99)
    before = [to_numpy(v) for v in model.trainable_variables]
    model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
    for _ in range(steps):
        loss = model.train_on_batch(_packed(xs), target)
    assert np.isfinite(loss)
    for v, old in zip(model.trainable_variables, before, strict=True):
        new = to_numpy(v)
        assert np.isfinite(new).all(), v.path
        assert (new != old).any(), f"{v.path} did not move"


def check_round_trip(model, xs) -> None:
    """A model comes back from a `.keras` file with the same config and bit-identical outputs."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        again = keras.models.load_model(f"{folder}/model.keras")
    assert [each.get_config() for each in again.layers] == [each.get_config() for each in model.layers]
    packed = _packed(xs)
    difference = np.abs(to_numpy(again(packed, training=False)) - to_numpy(model(packed, training=False)))
    assert difference.max() == 0.0


def _apply(layer, xs):
    return layer(xs[0], **_gate_kwarg(xs))


def _gate_kwarg(tensors) -> dict:
    return {"gate": tensors[1]} if len(tensors) > 1 else {}


def _packed(tensors):
    return tensors if len(tensors) > 1 else tensors[0]


def miniature(spec):
    """The same row with few, narrow blocks; the variant's own features stay."""
    changes = {"input_shape": (32, 32, spec.input_shape[-1]), "classes": 3}
    if isinstance(spec, ConvNetSpec):
        first = 4 if spec.widths[0] == spec.stem_width else 2  # a projection in the first block, or none
        changes |= {"blocks": (2, 1), "widths": (first, 6), "stem_width": 4}
    if isinstance(spec, ConvStackSpec):
        stages = tuple(
            dataclasses.replace(s, filters=s.filters and 3 + i, highways=s.highways[:2])
            for i, s in enumerate(spec.stages)
        )
        changes |= {"stages": stages}
    if isinstance(spec, DenseStackSpec):
        changes |= {"depth": 4, "units": 6, "input_shape": (8, 8, 1)}
    if getattr(spec, "neck_width", None):
        changes |= {"neck_width": 5}
    if getattr(spec, "hidden_units", None):
        changes |= {"hidden_units": 7}
    return override(spec, **changes)


def distinct_miniatures() -> dict:
    """A name of each different miniature -> its spec; rows that differ in size alone share one."""
    seen = {}
    for name, spec in VARIANTS.items():
        small = miniature(spec)
        key = dataclasses.replace(small, **IDENTITY)
        seen.setdefault(key, (name, small))
    return dict(seen.values())


def layers_deep(model) -> int:
    """Depth as the papers count it: convolutions and dense layers on the way through the transforms."""
    depth = 0
    for layer in model.layers:
        if isinstance(layer, HighwayDenseStack):
            depth += layer.depth
            continue
        path = getattr(layer, "transform", layer)
        depth += sum(isinstance(sub, (keras.layers.Conv2D, keras.layers.Dense)) for sub in path._flatten_layers())
    return depth


def predict_on(backend: str, folder: Path) -> None:
    """Runs `predict_folder` in a process with another backend."""
    env = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "XLA_FLAGS": QUICK_XLA}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), env.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, __file__, str(folder)], env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def predict_folder(folder: Path) -> None:
    """For each `<variant>.weights.h5`: builds its miniature, loads, writes the outputs for `<variant>.x.npy`."""
    for path in sorted(folder.glob("*.weights.h5")):
        name = path.name.removesuffix(".weights.h5")
        model = build(miniature(VARIANTS[name]))
        model.load_weights(path)
        y = model.predict(np.load(folder / f"{name}.x.npy"), verbose=0)  # compiled at once: faster on JAX than op by op
        np.save(folder / f"{name}.{keras.backend.backend()}.npy", y)


if __name__ == "__main__":
    predict_folder(Path(sys.argv[1]))
