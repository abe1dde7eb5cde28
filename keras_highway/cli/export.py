"""`export`: a network for other programs."""

from pathlib import Path

import numpy as np

from keras_highway._support.terminal import visible
from keras_highway.cli.errors import OK, UsageError, check_out, usage_errors
from keras_highway.cli.image_classifier import find_classifier, find_classifier_and_data
from keras_highway.cli.tables import percent
from keras_highway.data.datasets import DATASETS
from keras_highway.exporting import export, fold_batch_norm, part_of

_REPRESENTATIVE = 300  # training images that an int8 file is scaled by
_SUFFIXES = {"tf_saved_model": "", "onnx": ".onnx", "litert": ".tflite"}


def run(arguments) -> int:
    """Writes the file or folder and prints how far its outputs are from the Keras network's."""
    out, suffix = Path(arguments.out), _SUFFIXES[arguments.format]
    if out.suffix != suffix and suffix:
        raise UsageError(f"--out must name a {suffix} file for --format {arguments.format}. Received: {out}")
    if out.exists():
        raise UsageError(f"{out} exists: remove it, or choose another --out.")
    if suffix:
        check_out(str(out), suffix)
    with usage_errors():
        int8 = _representative(arguments) if arguments.int8 else None
        model, spec, samples, where = part_of(arguments.weights, arguments.logits, arguments.any_size)
        if arguments.fold_batch_norm:
            model = fold_batch_norm(model, spec)
        difference = export(model, out, arguments.format, samples, int8)
    if int8 is not None:
        share = f"of {len(int8)} training images {percent(difference)}"
        print(f"wrote {visible(out)}; {share} are in the Keras network's class")
        return OK
    print(f"wrote {visible(out)}; on {where} it differs from the Keras network by {difference:.1e}")
    return OK


def _representative(arguments) -> np.ndarray:
    """Training images from all over the data set, as the network is fed."""
    data_set = arguments.data_set or find_classifier(arguments.weights).data
    if data_set not in DATASETS:
        raise UsageError(
            f"--int8 is scaled by training images of {', '.join(DATASETS)}: pass one that the weights are for by "
            "--data-set, or in Python images of your own, keras_highway.exporting.export(model, path, 'litert', "
            f"int8=images). Received: {arguments.weights}, of {data_set or 'a data set that it does not name'}"
        )
    classifier, data = find_classifier_and_data(arguments.weights, data_set, arguments.data)
    chosen = np.linspace(0, len(data.x_train) - 1, min(_REPRESENTATIVE, len(data.x_train))).astype(int)
    return np.asarray(classifier.transform.apply(data.x_train[chosen]), "float32")
