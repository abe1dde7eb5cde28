"""Export a network as SavedModel, ONNX or LiteRT, and compare the file's outputs with Keras.

TensorFlow, onnxruntime and the ONNX converters are imported only for the
format that needs them.
"""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np

from keras_highway._support.files import partial_path, remove, sweep, written
from keras_highway._support.keras_models import stage_of
from keras_highway._support.schema import refuse, reworded
from keras_highway.analysis.trace import blocks, check_range
from keras_highway.applications import get_spec, model_of
from keras_highway.language import CharLM
from keras_highway.layers import Preprocessing, SharedKernels
from keras_highway.layers.blocks import Branch
from keras_highway.models.builder import build, in_format
from keras_highway.models.char_lm import word_part
from keras_highway.models.transfer import cloned_without_compiling, without_updates
from keras_highway.specs import ConvNetSpec, NetSpec, override
from keras_highway.tasks import LANGUAGE
from keras_highway.weights.load import trimmed
from keras_highway.weights.sources import resolve

TOLERANCE = 1e-4
_INT8_AGREEMENT = 0.9
_WORDS = 200
_OTHER_FLOATS = {"bfloat16", "float16", "float64"}
# Modules that warn during an export about NumPy 2, protobuf or each other's versions.
_NOISY = (r"keras\.src", "tf2onnx", r"google\.protobuf", "numpy", "tensorflow", r"torch\.", "jax2onnx", "onnx")


class Exportable(NamedTuple):
    """A network ready for export."""

    model: keras.Model  # the network
    spec: NetSpec | None = None  # the spec of its variant, `None` if unknown
    samples: np.ndarray | None = None  # inputs to compare the file on, `None` for random images
    samples_name: str = "random images"  # the samples in words, for messages


def load_exportable(weights: str, logits: bool = False, any_size: bool = False) -> Exportable:
    """Load the network of trained weights that other programs can run.

    An image network is exported whole. A language model is exported up to its
    LSTMs: int32 `(words, length)` from `Vocabulary.spell` to float32 `(words,
    sum(filters))`, the result of `CharLM.encode`.
    """
    file = resolve(weights)
    activation = None if logits else file.info.scores(file.classes)
    if file.archive is not None:
        if any_size and None not in file.archive.input_shape:
            raise ValueError(f"{file.path} takes images of one size: leave any_size out, or use keras_highway.save.")
        return Exportable(model_of(file, classifier_activation=activation))
    spec = get_spec(file.info.variant) if file.info.variant else None
    if spec is not None and spec.task is LANGUAGE:
        if logits or any_size:
            raise ValueError(f"`logits` and `any_size` are for images: leave them out. Received: {weights!r}")
        lm = CharLM(file)
        known = [lm.vocabulary.words[i] for i in np.linspace(0, len(lm.vocabulary.words) - 1, _WORDS).astype(int)]
        samples = lm.vocabulary.spell([*known, *(word[::-1] for word in known)])
        return Exportable(word_part(lm.network), spec, samples, "words of its vocabulary and words never seen")
    size = {}
    if spec is not None:
        spec = override(spec, **file.info.overrides)
        size = {"input_shape": in_format((None, None, spec.input_shape[-1]))} if any_size else {}
    return Exportable(model_of(file, classifier_activation=activation, **size), spec)


def export(
    model: keras.Model,
    path: str | os.PathLike[str],
    export_format: str,
    samples: np.ndarray | None = None,
    int8: np.ndarray | None = None,
) -> float:
    """Export a network, run the exported file and compare the outputs.

    A 16-bit or float64 network is exported in float32 with the same weights.
    Low-rank updates (`kh.enable_lora`) are merged into the kernels. An open
    image size stays open. If anything fails, no file is written and an
    earlier file at `path` is unchanged.

    Args:
        model: A network with one input and one output.
        path: The folder (`"tf_saved_model"`), `.onnx` or `.tflite` file to
            write.
        export_format: `"onnx"`, or on TensorFlow also `"tf_saved_model"` and
            `"litert"`.
        samples: Inputs for the comparison. Defaults to random images.
        int8: A few hundred training images as the network takes them, float32.
            The LiteRT file then computes in 8-bit integers, scaled by the
            activations of these images.

    Returns:
        The largest difference from the Keras network, relative to its largest
        output if that is above 1. With `int8`: the share of images to which
        both networks give the same class, or the same labels of a sigmoid.
    """
    path = Path(path)
    _check_request(model, path, export_format, samples, int8)
    merged = without_updates(model)
    net = in_float32(merged)
    options: dict = {}
    if int8 is not None:
        batches = [np.asarray(int8, "float32")]
        options = _int8_options(net, batches[0])
    elif samples is not None:
        inputs = getattr(net, "inputs", None)
        batches = [np.asarray(samples, inputs[0].dtype if inputs else None)]
    else:
        batches = _random_images(net)
    expected = [_output(net(x, training=False)) for x in batches]  # Keras exports only a model that has run
    if net is merged is not model:  # in float32, so that the model with its updates can be compared with
        expected = [_output(model(x, training=False)) for x in batches]
    if not all(np.isfinite(output).all() for output in expected):
        raise ValueError(f"The network's own outputs are not all finite. Received: model {model.name!r}")
    sweep(path.parent)
    partial = partial_path(path)
    try:
        with written(path):
            with warnings.catch_warnings():
                for module in _NOISY:
                    warnings.filterwarnings("ignore", module=module)
                net.export(partial, format=export_format, verbose=False, **options)
            computed = [FORMATS[export_format](partial, x) for x in batches]
            if int8 is None:
                result = _largest_difference(computed, expected)
                is_right = result <= TOLERANCE  # NaN is wrong
                problem = f"differs from the Keras network by {result:.2g}"
            else:
                activation = getattr(net.layers[-1], "activation", None)
                ours, theirs = (_labels(outputs[0], activation) for outputs in (computed, expected))
                result = float(np.mean((ours == theirs).all(-1)))
                is_right = result >= _INT8_AGREEMENT
                problem = f"agrees with the Keras network on {100 * result:.1f} % of the images: pass more of them"
            if not is_right:
                raise ValueError(f"The exported network {problem}. Nothing was written.")
            partial.replace(path)
        return result
    finally:
        remove(partial)


def _labels(outputs: np.ndarray, activation: object) -> np.ndarray:
    """Return the class of each image, or for a sigmoid and for one output, which labels it has."""
    sigmoid = activation is keras.activations.sigmoid
    if outputs.shape[-1] > 1 and not sigmoid:
        return outputs.argmax(-1)[:, None]
    return outputs > (0.5 if sigmoid else 0.0)


def _check_request(
    model: keras.Model, path: Path, export_format: str, samples: np.ndarray | None, int8: np.ndarray | None
) -> None:
    backend, inputs, outputs = keras.config.backend(), getattr(model, "inputs", None), getattr(model, "outputs", None)
    subclassed = inputs is None or outputs is None
    empty_folder = path.is_dir() and not path.is_symlink() and not any(path.iterdir())
    rules = (
        (export_format in FORMATS, f"`export_format` must be one of {tuple(FORMATS)}"),
        (export_format == "onnx" or backend == "tensorflow", "Set KERAS_BACKEND=tensorflow, or export to ONNX"),
        (int8 is None or export_format == "litert", "Only LiteRT files are quantized to int8"),
        (int8 is None or not subclassed, "Only functional models are quantized to int8"),
        (samples is not None or not subclassed, "A subclassed model needs `samples`: its input shape is unknown"),
        (subclassed or len(inputs) == len(outputs) == 1, "Export takes networks with one input and one output"),
        (
            not path.is_dir() if export_format != "tf_saved_model" else empty_folder or not path.exists(),
            f"{path} is a {'folder' if path.is_dir() else 'file'}: remove it, or choose another path",
        ),
    )
    received = f"{model.name!r} of type {type(model).__name__}, {export_format=}, KERAS_BACKEND={backend}"
    refuse(*((not is_met, f"{rule}. Received: {received}") for is_met, rule in rules))
    if export_format == "onnx":  # Keras's own error does not say how to install a package
        for package in ("onnx", "onnxruntime", *{"tensorflow": ["tf2onnx"], "jax": ["jax2onnx"]}.get(backend, [])):
            extra = "jax2onnx" if package == "jax2onnx" else '"keras-highway[onnx]"'
            text = f"Exporting to ONNX on {backend} needs {package}: pip install {extra}"
            with reworded(text, ImportError, ImportError):
                __import__(package)


def _output(outputs) -> np.ndarray:
    """Return the only output as an array; a feature extractor has it in a dictionary."""
    flat = keras.tree.flatten(outputs)
    if len(flat) != 1:
        raise ValueError(f"Export takes networks with one output. Received: a model that returns {len(flat)} tensors")
    return np.asarray(keras.ops.convert_to_numpy(flat[0]))


def _random_images(model: keras.Model) -> list[np.ndarray]:
    """Return random pixels or floats as the model takes them; two batches of two sizes if the size is open."""
    shape, dtype = model.input_shape[1:], model.inputs[0].dtype
    pixels = not keras.backend.is_float_dtype(dtype) or any(isinstance(layer, Preprocessing) for layer in model.layers)
    draw = np.random.default_rng(0)
    batches = []
    for count, sides in ((3, (64, 64)), (2, (96, 80))):  # not a batch of one, the size that a tracer sees
        side = iter(sides)
        size = (count, *(next(side) if n is None else n for n in shape))
        batches.append((draw.integers(0, 256, size) if pixels else draw.standard_normal(size)).astype(dtype))
    return batches if None in shape else batches[:1]


def _largest_difference(computed: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """Return the largest difference, relative to the largest expected output if that is above 1; NaN for NaN."""
    pairs = zip(computed, expected, strict=True)
    return float(np.max([np.abs(ours - theirs).max() / max(1.0, np.abs(theirs).max()) for ours, theirs in pairs]))


def _int8_options(model: keras.Model, images: np.ndarray) -> dict:
    """Return the arguments that make TensorFlow's converter quantize."""
    if None in model.input_shape[1:] or images.shape[1:] != model.input_shape[1:] or not len(images):
        raise ValueError(
            f"`int8` must be images of the fixed input shape of the model, {model.input_shape[1:]}. "
            f"Received: shape {images.shape}"
        )
    check_range(images, model)
    import tensorflow as tf

    return {
        "optimizations": [tf.lite.Optimize.DEFAULT],
        "representative_dataset": lambda: ([image[None]] for image in images),
        "target_spec": {"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]},
    }


def _run_saved_model(path: Path, samples: np.ndarray) -> np.ndarray:
    layer = keras.layers.TFSMLayer(str(path), call_endpoint="serve", dtype="float32")  # whatever the global policy
    return _output(layer(samples))


def _run_onnx(path: Path, samples: np.ndarray) -> np.ndarray:
    import onnxruntime  # pyright: ignore[reportMissingImports] (an extra)

    text = f"onnxruntime cannot run the file that Keras wrote on {keras.config.backend()}. "
    with reworded(f"{text}Export on TensorFlow or PyTorch (KERAS_BACKEND). Received", Exception):
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return np.asarray(session.run(None, {session.get_inputs()[0].name: samples})[0])


def _run_litert(path: Path, samples: np.ndarray) -> np.ndarray:
    import tensorflow as tf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the interpreter will move to a package of its own
        interpreter = tf.lite.Interpreter(str(path))
    (input_details,), (output_details,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.resize_tensor_input(input_details["index"], samples.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(input_details["index"], samples)
    interpreter.invoke()
    return interpreter.get_tensor(output_details["index"])


# Each format with the function that runs a file.
FORMATS: dict[str, Callable[[Path, np.ndarray], np.ndarray]] = {
    "tf_saved_model": _run_saved_model,
    "onnx": _run_onnx,
    "litert": _run_litert,
}


def in_float32(model: keras.Model) -> keras.Model:
    """Return the model, or a float32 copy with the same weights if a layer uses another float type."""
    others = _other_floats(model)
    if not others:
        return model
    try:
        with cloned_without_compiling(model):
            copy = keras.models.clone_model(
                model, _float32_inputs(model), clone_function=_float32_layer, recursive=True
            )
        copy.set_weights(model.get_weights())
        reason = "; ".join(_other_floats(copy))
    except (TypeError, ValueError) as error:
        reason = str(error)
    if reason:
        raise ValueError(f"Build {model.name!r} with dtype='float32' to export it. Received: {others[0]}, and {reason}")
    return copy


def _other_floats(model: keras.Model) -> list[str]:
    """Return the float types other than float32 that layers and inputs use."""
    parts = model._flatten_layers()  # pyright: ignore[reportPrivateUsage] (Keras has no public way to them)
    # The policy of an input layer is the global one, whatever dtype it gives.
    layers = [part for part in parts if not isinstance(part, keras.layers.InputLayer)]
    dtypes = [layer.compute_dtype for layer in layers if layer is not model]
    dtypes += [keras.backend.standardize_dtype(x.dtype) for x in getattr(model, "inputs", None) or ()]
    dtypes += [getattr(layer, "skip_dtype", None) for layer in layers]
    return sorted(_OTHER_FLOATS.intersection(dtypes))


def _float32_inputs(model: keras.Model):
    """Return inputs for the copy, or `None` if Keras can copy the model's own."""
    if not any(x.dtype in _OTHER_FLOATS for x in getattr(model, "inputs", None) or ()):
        return None
    # A sequential model has no `input` before its first call.
    known = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    dtypes = dict.fromkeys(_OTHER_FLOATS, "float32")
    return keras.tree.map_structure(
        lambda x: keras.Input(batch_shape=x.shape, dtype=dtypes.get(x.dtype, x.dtype), name=x.name), known
    )


def _float32_layer(layer: keras.layers.Layer) -> keras.layers.Layer:
    config = {**layer.get_config(), "dtype": "float32"}
    if "skip_dtype" in config:
        config["skip_dtype"] = "float32"
    return type(layer).from_config(config)


def fold_batch_norm(model: keras.Model, spec: NetSpec | None) -> keras.Model:
    """Return a network without batch normalization that computes the same in inference.

    `gamma · (conv(x) − mean) / √(variance + ε) + beta` is a convolution with a
    bias, whose kernel is multiplied by one number per channel.
    """
    if not isinstance(spec, ConvNetSpec) or not spec.batch_norm:
        raise ValueError(
            "Only networks of a known spec with batch normalization can be folded: save the model with "
            f"keras_highway.save and export that folder. Received: {model.name!r}, spec of {spec and spec.name!r}"
        )
    model = without_updates(model)
    head = model.get_layer("head")
    images = keras.Input(model.input_shape[1:], dtype=model.inputs[0].dtype)
    first = model.layers[1]
    folded = build(
        override(spec, batch_norm=False, shared_transforms=False),  # a scaled kernel cannot be shared
        input_tensor=type(first).from_config(first.get_config())(images)
        if isinstance(first, Preprocessing)
        else images,
        classes=head.units,
        classifier_activation=head.activation,
        name=f"{model.name}_folded",
        dtype="float64" if head.compute_dtype == "float64" else "float32",
    )
    names = {layer.name for layer in model.layers}
    folded = trimmed(folded, [name for name in blocks(folded) if name not in names])
    shared = {stage_of(layer.name): layer.kernels for layer in model.layers if isinstance(layer, SharedKernels)}
    for old in model.layers:
        if old.weights and not isinstance(old, SharedKernels):
            _fold_layer(old, folded.get_layer(old.name), shared.get(stage_of(old.name)))
    exact = in_float32(model) if folded.layers[-1].compute_dtype == "float32" else model
    batches = _random_images(folded)
    ours, theirs = ([_output(net(x, training=False)) for x in batches] for net in (folded, exact))
    if not (difference := _largest_difference(ours, theirs)) <= TOLERANCE:  # also refuses NaN
        raise ValueError(
            f"The folded network differs by {difference:.2g}: {model.name!r} is no network of spec {spec.name!r}."
        )
    return folded


def _fold_layer(old, new, shared=None) -> None:
    if isinstance(old, Branch):
        _fold_branch(old, new, shared)
    elif hasattr(old, "paths"):
        for (_, branch), (_, target) in zip(old.paths(), new.paths(), strict=True):
            _fold_layer(branch, target, shared)
    else:
        new.set_weights(old.get_weights())


def _fold_branch(old: Branch, new: Branch, shared) -> None:
    for i in range(1, old.depth + 1):
        conv, target = getattr(old, f"conv{i}"), getattr(new, f"conv{i}")
        if not old.batch_norm:  # the 1x1 gate of the exclusive gating
            target.set_weights(conv.get_weights())
            continue
        norm = getattr(old, f"bn{i}")
        gamma, beta, mean, variance = (
            np.asarray(keras.ops.convert_to_numpy(v), "float64")
            for v in (norm.gamma, norm.beta, norm.moving_mean, norm.moving_variance)
        )
        scale = gamma / np.sqrt(variance + norm.epsilon)
        kernel = conv.kernel if old.own_kernels else shared[i - 1]
        target.kernel.assign(np.asarray(keras.ops.convert_to_numpy(kernel)) * scale)
        target.bias.assign(beta - mean * scale)
