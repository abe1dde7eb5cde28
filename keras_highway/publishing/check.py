"""`check.npz`: an input, its logits and a trace, so that anybody can see that weights compute what they should."""

import zipfile
from pathlib import Path

import keras
import numpy as np

from keras_highway.analysis import Tracer
from keras_highway.transforms import Transform

CHECK = "check.npz"
TOLERANCE = 1e-4
_GATE = "gate/"


def write_check(model: keras.Model, transform: Transform, path: Path) -> None:
    """Writes pixels, the model's logits for them, and every block's mean transform gate by channel.

    Args:
        model: A network that gives logits.
        transform: What the pixels go through.
        path: The file.
    """
    pixels = _pixels(transform)
    np.savez(path, pixels=pixels, **_computed(model, transform, pixels))


def compare_check(model: keras.Model, transform: Transform, path: Path) -> float:
    """Computes everything in a `check.npz` again; returns the largest difference.

    Args:
        model: A network that gives logits.
        transform: What the pixels go through.
        path: The file.

    Raises:
        ValueError: If it is no such file, or something differs by more than
            `TOLERANCE`, relative to the largest logit where that is above 1.
    """
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            recorded = dict(file)
        computed = _computed(model, transform, recorded.pop("pixels"))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is no {CHECK}: {error!r}.") from error
    if recorded.keys() != computed.keys() or any(recorded[k].shape != v.shape for k, v in computed.items()):
        raise ValueError(f"{path} holds {sorted(recorded)}; the network has {sorted(computed)}, or other shapes.")
    scale = max(1.0, float(np.abs(recorded["logits"]).max()))
    worst, where = max((float(np.abs(recorded[name] - value).max()) / scale, name) for name, value in computed.items())
    if not worst <= TOLERANCE:  # not a number is no agreement
        raise ValueError(f"The network does not compute what {path.name} recorded: {where} differs by {worst:.2g}.")
    return worst


def _pixels(transform) -> np.ndarray:
    """A smooth picture and its mirror image: noise would look alike to every pooling layer."""
    height, width = transform.size
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    waves = [127.5 * (1 + np.sin(9 * x * (c + 1) + 7 * y)) for c in range(transform.channels)]
    picture = np.stack(waves, axis=-1).astype("uint8")
    return np.stack([picture, picture[:, ::-1]])


def _computed(model, transform, pixels) -> dict[str, np.ndarray]:
    inputs = transform.apply(pixels)
    try:
        traces = Tracer(model)(inputs)
    except ValueError:  # the nets of 1000 layers run them in a scan and have no blocks
        return {"logits": np.asarray(keras.ops.convert_to_numpy(model(inputs, training=False)))}
    gates = {}
    for name, entry in traces.items():
        t = np.broadcast_to(entry.t, entry.x.shape)
        gates[_GATE + name] = t.mean(axis=tuple(range(t.ndim - 1))).astype("float32")
    return {"logits": np.asarray(traces.output), **gates}
