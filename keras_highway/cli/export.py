"""`export`: a network for other programs."""

from pathlib import Path

from keras_highway.cli.errors import OK, UsageError, usage_errors
from keras_highway.exporting import export, fold_batch_norm, part_of

_SUFFIXES = {"tf_saved_model": "", "onnx": ".onnx", "litert": ".tflite"}


def run(arguments) -> int:
    """Writes the file or folder and says how far it is from the Keras network."""
    out, suffix = Path(arguments.out), _SUFFIXES[arguments.format]
    if out.suffix != suffix and suffix:
        raise UsageError(f"--out must name a {suffix} file for --format {arguments.format}. Received: {out}")
    if out.exists():
        raise UsageError(f"{out} exists: remove it, or choose another --out.")
    with usage_errors():
        model, spec, samples, where = part_of(arguments.weights, arguments.logits)
        if arguments.fold_batch_norm:
            model = fold_batch_norm(model, spec)
        difference = export(model, out, arguments.format, samples)
    print(f"wrote {out}; on {where} it differs from the Keras network by {difference:.1e}")
    return OK
