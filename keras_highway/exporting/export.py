"""Exports a network and runs what was exported: a file that computes something else is removed.

TensorFlow, onnxruntime and what Keras writes ONNX with are imported only for
the format that needs them.
"""

import os
import warnings
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

from keras_highway._support.files import partial_path, remove, sweep, written
from keras_highway.exporting.precision import in_float32
from keras_highway.exporting.quantize import agreement, int8_options
from keras_highway.layers import Preprocessing
from keras_highway.models.lora import without_updates

TOLERANCE = 1e-4
# They warn of what exporting makes them do with NumPy 2, protobuf and newer versions of one another.
_NOISY = (r"keras\.src", "tf2onnx", r"google\.protobuf", "numpy", "tensorflow", r"torch\.", "jax2onnx", "onnx")
_SAMPLES = 3  # another batch size than the one a tracer would see
_OPEN_SIZES = ((64, 64), (96, 80))  # what an open image size is tried with
# The share of the representative images that an int8 network must put into the float32 network's class.
INT8_AGREEMENT = 0.9


def export(
    model: keras.Model,
    path: str | os.PathLike[str],
    export_format: str,
    samples: np.ndarray | None = None,
    int8: np.ndarray | None = None,
) -> float:
    """Exports a network, runs the exported file and compares.

    A network that computes in 16 bits is exported in float32, with the same
    weights; low-rank updates (`kh.enable_lora`) become part of the kernels.
    An open image size stays open: the file takes images of any size.

    Args:
        model: A network of one input.
        path: What to write: a folder for `"tf_saved_model"`, a `.onnx` or a
            `.tflite` file.
        export_format: `"onnx"`; on TensorFlow also `"tf_saved_model"` and
            `"litert"`.
        samples: What both are run on, of the dtype of the network's input.
            Defaults to random images; where the size is open, of two sizes.
        int8: Images as the network is fed, float32, a few hundred of those it
            was trained on: weights and activations of a LiteRT file become
            whole numbers of 8 bits, scaled by what these images lead to. The
            file takes and gives float32. Defaults to `None`: float32.

    Returns:
        The largest difference from the Keras network, relative to its largest
        output where that is above 1. With `int8`, the share of its images
        that are in the same class as the Keras network has them in.

    Raises:
        ValueError: If the format is unknown or not of this backend, `int8` is
            passed for another format or together with `samples`, the model is
            subclassed and there are no `samples`, or it has several inputs or
            outputs, gives NaN or infinity, there is a folder at `path`
            already, or the exported network computes something else.
        OSError: If the file cannot be written. Whatever is raised, what was
            at `path` before is as it was.
        ImportError: If a package that the format needs is not installed.
    """
    path = Path(path)
    _check(export_format, int8)
    if int8 is not None:
        int8 = np.asarray(int8, "float32")
    if int8 is not None and samples is not None:
        raise ValueError("With `int8` the file is run on its images: leave `samples` out. Received: both")
    if path.is_dir() and (export_format != "tf_saved_model" or path.is_symlink() or any(path.iterdir())):
        raise ValueError(f"{path} is a folder: remove it, or choose another path.")
    if export_format == "tf_saved_model" and path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file, and {export_format} is a folder: remove it, or choose another path.")
    _check_outputs(model, samples, int8)
    given, merged = model, without_updates(model)
    model = in_float32(merged)
    options = {} if int8 is None else int8_options(model, int8)
    batches = [int8] if int8 is not None else [_as_fed(model, samples)] if samples is not None else random_images(model)
    expected = [_output(model(x, training=False)) for x in batches]  # Keras exports what has run
    if model is merged and merged is not given:  # both in float32
        expected = [_output(given(x, training=False)) for x in batches]
    if not all(np.isfinite(output).all() for output in expected):
        of = "`int8` images" if int8 is not None else "samples"
        raise ValueError(
            "The network's own outputs are not all finite: there is nothing to compare a file with. Received: model "
            f"{model.name!r}, which gives NaN or infinity for the {of}"
        )
    sweep(path.parent)
    run, partial = FORMATS[export_format], partial_path(path)
    try:
        with written(path):
            with warnings.catch_warnings():
                for theirs in _NOISY:
                    warnings.filterwarnings("ignore", module=theirs)
                model.export(partial, format=export_format, verbose=False, **options)
            computed = [run(partial, x) for x in batches]
            share = None if int8 is None else agreement(computed[0], expected[0], INT8_AGREEMENT)
            difference = _difference(computed, expected) if share is None else share
            partial.replace(path)
        return difference
    except BaseException:
        remove(partial)
        raise


def _check(export_format, int8) -> None:
    backend = keras.config.backend()
    if export_format not in FORMATS:
        raise ValueError(f"`export_format` must be one of {tuple(FORMATS)}. Received: {export_format!r}")
    if export_format != "onnx" and backend != "tensorflow":
        raise ValueError(
            f"{export_format} files are written on TensorFlow only: set KERAS_BACKEND=tensorflow, or export to ONNX. "
            f"Received: KERAS_BACKEND={backend}"
        )
    if int8 is not None and export_format != "litert":
        raise ValueError(f"Only LiteRT files are quantized to int8. Received: export_format={export_format!r}")
    if export_format == "onnx":
        _check_onnx(backend)


def _check_outputs(model, samples, int8) -> None:
    inputs, outputs = getattr(model, "inputs", None), getattr(model, "outputs", None)
    if inputs is None or outputs is None:
        if int8 is not None:
            raise ValueError(
                "Only functional models are quantized to int8: export the one inside. Received: model "
                f"{model.name!r} of type {type(model).__name__}"
            )
        if samples is None:
            raise ValueError(
                f"The shape of a subclassed model's input is not known: pass `samples`. Received: model {model.name!r} "
                f"of type {type(model).__name__}"
            )
        return  # its output is compared on the user's samples
    if len(inputs) != 1 or len(outputs) != 1:
        raise ValueError(
            "Networks of one input and one output are exported: what the file computes is compared with the network's "
            f"own output. Received: {model.name!r} with {len(inputs)} inputs and {len(outputs)} outputs"
        )


def _as_fed(model, samples) -> np.ndarray:
    """The user's samples in the dtype that the network takes, which was another before it was made float32."""
    inputs = getattr(model, "inputs", None)
    return np.asarray(samples) if inputs is None else np.asarray(samples).astype(inputs[0].dtype)


def _output(outputs) -> np.ndarray:
    """The only one; a feature extractor of one stage has it in a dictionary."""
    flat = keras.tree.flatten(outputs)
    if len(flat) != 1:
        raise ValueError(f"Networks of one output are exported. Received: a model that returns {len(flat)} tensors")
    return np.asarray(keras.ops.convert_to_numpy(flat[0]))


def _check_onnx(backend) -> None:
    """What Keras writes ONNX with differs by backend; where it is missing, its own error is not plain."""
    needed = ["onnx", "onnxruntime", *{"tensorflow": ["tf2onnx"], "jax": ["jax2onnx"]}.get(backend, [])]
    for package in needed:
        try:
            __import__(package)
        except ImportError as error:
            extra = "jax2onnx" if package == "jax2onnx" else '"keras-highway[onnx]"'
            raise ImportError(f"Exporting to ONNX on {backend} needs {package}: pip install {extra}") from error


def random_images(model) -> list[np.ndarray]:
    """Random images; of several sizes where the size is open. Pixels, where the network takes these."""
    draw = np.random.default_rng(0)
    shape, dtype = model.input_shape[1:], model.inputs[0].dtype
    pixels = not keras.backend.is_float_dtype(dtype) or any(isinstance(layer, Preprocessing) for layer in model.layers)

    def images(count, sizes):
        if pixels:
            return draw.integers(0, 256, (count, *sizes)).astype(dtype)
        return draw.standard_normal((count, *sizes)).astype(dtype)

    if None not in shape:
        return [images(_SAMPLES, shape)]
    shapes = []
    for size in _OPEN_SIZES:
        sizes = iter(size)
        shapes.append([next(sizes) if n is None else n for n in shape])
    return [images(_SAMPLES - i, s) for i, s in enumerate(shapes)]


def _difference(computed, expected) -> float:
    worst = 0.0
    for ours, theirs in zip(computed, expected, strict=True):
        difference = relative_difference(ours, theirs)
        if not difference <= TOLERANCE:  # NaN is not an agreement
            raise ValueError(f"The exported network differs from the Keras network by {difference:.2g}.")
        worst = max(worst, difference)
    return worst


def relative_difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference of two outputs, relative to the largest of the second where that is above 1."""
    return float(np.abs(ours - theirs).max()) / max(1.0, float(np.abs(theirs).max()))


def _run_saved_model(path, samples) -> np.ndarray:
    layer = keras.layers.TFSMLayer(str(path), call_endpoint="serve", dtype="float32")  # whatever the global policy
    return _output(layer(samples))


def _run_onnx(path, samples) -> np.ndarray:
    import onnxruntime  # pyright: ignore[reportMissingImports] (an extra)

    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return np.asarray(session.run(None, {session.get_inputs()[0].name: samples})[0])
    except Exception as error:  # its errors have no common class
        raise ValueError(
            f"onnxruntime cannot run what Keras wrote on {keras.config.backend()}; on TensorFlow and PyTorch "
            f"(KERAS_BACKEND) it writes another file: {error}"
        ) from error


def _run_litert(path, samples) -> np.ndarray:
    import tensorflow as tf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it will move to a package of its own
        interpreter = tf.lite.Interpreter(str(path))
    (input_details,), (output_details,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.resize_tensor_input(input_details["index"], samples.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(input_details["index"], samples)
    interpreter.invoke()
    return interpreter.get_tensor(output_details["index"])


FORMATS: dict[str, Callable[[Path, np.ndarray], np.ndarray]] = {
    "tf_saved_model": _run_saved_model,
    "onnx": _run_onnx,
    "litert": _run_litert,
}
