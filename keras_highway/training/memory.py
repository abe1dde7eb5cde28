"""Check whether a training step fits into memory: a system without memory kills the process without a message."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np

from keras_highway.analysis import cost
from keras_highway.data.transforms import TRANSFORMS

# ResNet50 at 224 pixels takes 101 MB an image on TensorFlow's CPU, 1.6 times the count of `cost`; on JAX 1.4 times.
_OF_ACTIVATIONS = 1.5
_OF_PARAMETERS = 3  # themselves, gradients and momentum
_TIGHT, _BEYOND = 0.8, 1.5  # shares of the free memory: a note above the first, an error above the second
_SMALL = 2**20  # bytes of a batch of images; smaller batches are not estimated, which takes seconds
_REMEDY = "Set micro_batches=N, which must divide batch_size, or a smaller batch_size (--set NAME=VALUE)."
_MEMINFO, _GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def available_bytes() -> float:
    """Return the free memory of the machine, or of its container if that is less; infinity if unknown."""
    amounts = [float("inf")]
    with contextlib.suppress(OSError, AttributeError):
        line = re.search(r"^MemAvailable:\s*(\d+)", _MEMINFO.read_text(), re.M)
        amounts.append(int(line[1]) * 1024)  # pyright: ignore[reportOptionalSubscript] (suppressed above)
    with contextlib.suppress(OSError, ValueError):  # "max": no limit
        amounts.append(int((_GROUP / "memory.max").read_text()) - int((_GROUP / "memory.current").read_text()))
    return min(amounts)


def step_bytes(program, images: int, shape: tuple[int, int, int]) -> int:
    """Return an estimate of the memory of a step on `images` images of a shape."""
    net = program.net
    if None in net.input_shape[1:]:  # built for any size
        one = keras.Input(shape)
        net = keras.Model(one, net(one))
    parameters = 4 * sum(np.prod(w.shape) for w in net.variables)
    return int(_OF_ACTIVATIONS * cost(net).total.activation_bytes * images + _OF_PARAMETERS * parameters)


def check_memory(program, shards: int, gpus: list[str], resumed: bool = False) -> None:
    """Print a note if a step on the CPU may not fit into memory; refuse one that needs far more.

    Args:
        program: The program. Language models and nets with `remat` are not
            estimated.
        shards: Number of processes; several are not estimated.
        gpus: The GPUs; their libraries report what they lack.
        resumed: Whether the run continues: then it is never refused. Defaults
            to `False`.

    Raises:
        ValueError: If the estimate is 1.5 times the free memory or more.
            `KERAS_HIGHWAY_MEMORY_CHECK=off` disables the check.
    """
    recipe = program.recipe
    transform = TRANSFORMS.get(getattr(recipe, "transform", ""))
    off = os.environ.get("KERAS_HIGHWAY_MEMORY_CHECK") == "off" or gpus or shards > 1
    if off or transform is None or dict(recipe.overrides).get("remat"):
        return
    images = recipe.batch_size // recipe.micro_batches
    height, width = recipe.training_size(transform.size)
    if 4 * images * height * width * transform.channels < _SMALL:
        return
    needed, free = step_bytes(program, images, (height, width, transform.channels)), available_bytes()
    message = (
        f"A step on {images} images of {height}x{width} pixels needs about {needed / 2**30:.1f} GiB of memory; "
        f"{free / 2**30:.1f} GiB are free. {_REMEDY}"
    )
    if needed > _BEYOND * free and not resumed:
        raise ValueError(f"{message} Or set the environment variable KERAS_HIGHWAY_MEMORY_CHECK=off.")
    if needed > _TIGHT * free:
        print(f"note: {message}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def explained_memory(recipe) -> Iterator[None]:
    """Raise a `MemoryError` that names the remedy if a GPU runs out of memory."""
    try:
        yield
    except Exception as error:
        text = f"{type(error).__name__} {error}"
        exhausted = re.search("RESOURCE_EXHAUSTED|ResourceExhausted|OutOfMemory", text)
        if exhausted and re.search(r"\bOOM\b|out ?of ?memory|allocat", text, re.IGNORECASE):  # not of open files
            raise MemoryError(f"A step of {recipe.name} does not fit into memory. {_REMEDY}") from error
        raise
