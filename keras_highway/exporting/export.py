"""Exports a network and runs what was exported: a file that computes something else is no export.

TensorFlow, onnxruntime and tf2onnx are imported only for the format that
needs them.
"""

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

TOLERANCE = 1e-4
# They warn of what exporting makes them do with NumPy 2 and protobuf.
_NOISY = (r"keras\.src\.export", r"keras\.src\.utils", "tf2onnx", r"google\.protobuf", "numpy", "tensorflow")
_SAMPLES = 3  # another batch size than the one a tracer would see


def export(model: keras.Model, path: Path, export_format: str, samples: np.ndarray | None = None) -> float:
    """Exports a network, runs the exported file and compares.

    Args:
        model: A network of one input, with a fixed image size.
        path: What to write: a folder for `"tf_saved_model"`, a `.onnx` or a
            `.tflite` file.
        export_format: `"tf_saved_model"`, `"onnx"` or `"litert"`.
        samples: What both are run on, of the dtype of the network's input.
            Defaults to random images.

    Returns:
        The largest difference from the Keras network, relative to its largest
        output where that is above 1.

    Raises:
        ValueError: If the format is unknown, the backend is not TensorFlow,
            the image size is open, or the exported network computes something
            else (nothing is left at `path` then).
        ImportError: If a package that the format needs is not installed.
    """
    if export_format not in FORMATS:
        raise ValueError(f"`export_format` must be one of {tuple(FORMATS)}. Received: {export_format!r}")
    if keras.config.backend() != "tensorflow":
        raise ValueError(
            f"Exporting needs the TensorFlow backend: set KERAS_BACKEND=tensorflow. Received: {keras.config.backend()}"
        )
    if None in model.input_shape[1:]:
        raise ValueError(f"Exporting needs a fixed image size: pass input_shape. Received: {model.input_shape}")
    if samples is None:
        samples = np.random.default_rng(0).standard_normal((_SAMPLES, *model.input_shape[1:])).astype("float32")
    expected = keras.ops.convert_to_numpy(model(samples, training=False))
    run = FORMATS[export_format]
    try:
        with warnings.catch_warnings():
            for theirs in _NOISY:
                warnings.filterwarnings("ignore", module=theirs)
            model.export(path, format=export_format, verbose=False)
        computed = run(path, samples)
        difference = float(np.abs(computed - expected).max()) / max(1.0, float(np.abs(expected).max()))
        if not difference <= TOLERANCE:  # not a number is no agreement
            raise ValueError(f"The exported network differs from the Keras network by {difference:.2g}.")
    except BaseException:
        _remove(path)
        raise
    return difference


def _remove(path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _run_saved_model(path, samples) -> np.ndarray:
    layer = keras.layers.TFSMLayer(str(path), call_endpoint="serve")
    return np.asarray(keras.ops.convert_to_numpy(layer(samples)))


def _run_onnx(path, samples) -> np.ndarray:
    import onnxruntime  # pyright: ignore[reportMissingImports] (an extra)

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {session.get_inputs()[0].name: samples})[0])


def _run_litert(path, samples) -> np.ndarray:
    import tensorflow as tf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it will move to a package of its own
        interpreter = tf.lite.Interpreter(str(path))
    (given,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.resize_tensor_input(given["index"], samples.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(given["index"], samples)
    interpreter.invoke()
    return interpreter.get_tensor(result["index"])


FORMATS: dict[str, Callable[[Path, np.ndarray], np.ndarray]] = {
    "tf_saved_model": _run_saved_model,
    "onnx": _run_onnx,
    "litert": _run_litert,
}
