"""Whether a step fits into memory, estimated before the first one: a system that runs out kills without a message."""

import contextlib
import json
import math
import os
import re
import sys
from collections.abc import Iterator

import keras

from keras_highway._support.memory import available_bytes
from keras_highway.analysis import cost
from keras_highway.data.transforms import TRANSFORMS
from keras_highway.training.program import Trainable

# Of ResNet50 at 224 pixels on TensorFlow's CPU 101 MB per image were measured, 1.6 times what `cost` counts; on JAX,
# XLA's temporaries of 32 images are 2802 MB, 1.4 times. Other nets were not measured: hence the margin below.
_OF_ACTIVATIONS = 1.5
_OF_PARAMETERS = 3  # themselves, gradients and momentum
_MOST = 2000  # times the bytes of its input that an image may need; below it nothing is computed
_TIGHT = 0.8  # share of the free memory from which on a step is reported
_BEYOND = 1.5  # and the one from which on it is refused
_REMEDY = "compute it in parts, --set micro_batches=N (N divides batch_size), or take a smaller --set batch_size=N"

CHECK_VARIABLE = "KERAS_HIGHWAY_MEMORY_CHECK"
_REFUSE, _NOTE, _OFF = CHECKS = ("refuse", "note", "off")

# Words of a backend's error when resources run out, and those that show which: open files are resources, too.
_EXHAUSTED = re.compile("RESOURCE_EXHAUSTED|ResourceExhausted|OutOfMemory")
_OF_MEMORY = re.compile(r"\bOOM\b|out ?of ?memory|allocat", re.IGNORECASE)


def step_bytes(program: Trainable, images: int, shape: tuple[int, int, int]) -> int:
    """Returns about what a step needs: an estimate after measurements on TensorFlow; XLA may need less.

    Args:
        program: What it computes.
        images: Images that are computed at once.
        shape: Of one of them.
    """
    net = program.net
    if None in net.input_shape[1:]:  # built for any size
        one = keras.Input(shape)
        net = keras.Model(one, net(one))
    activations = cost(net).total.activation_bytes
    parameters = 4 * sum(math.prod(w.shape) for w in net.variables)
    return int(_OF_ACTIVATIONS * activations * images + _OF_PARAMETERS * parameters)


def check_memory(program: Trainable, shards: int, accelerators: list[str], resumed: bool = False) -> None:
    """Warns on stderr where a step may not fit into the machine's memory; refuses one that is far from it.

    Only image networks are estimated; not on a GPU, whose library itself
    reports what it lacks, nor nets whose blocks are computed again (`remat`).
    The workers of one machine share its memory.

    Args:
        program: What is to be trained.
        shards: Processes that share a batch.
        accelerators: The GPUs.
        resumed: Whether the run continues from a saved state: it is never refused.
            Defaults to `False`.

    Raises:
        ValueError: If the estimate is 1.5 times what is free or more, the run
            is fresh and of one process (of several, one would leave the others
            waiting), and `KERAS_HIGHWAY_MEMORY_CHECK` is not `note` or `off`;
            if it is something else.
    """
    check, free = _check(), available_bytes()
    recipe = program.recipe
    transform = TRANSFORMS.get(getattr(recipe, "transform", ""))
    remat = dict(recipe.overrides).get("remat") if transform else False
    if check == _OFF or transform is None or accelerators or free is None or remat:
        return
    free //= _workers_here(shards)
    images = recipe.batch_size // shards // recipe.micro_batches
    shape = (*recipe.training_size(transform.size), transform.channels)
    if images * 4 * shape[0] * shape[1] * shape[2] * _MOST < _TIGHT * free:
        return
    needed = step_bytes(program, images, shape)
    parts = f" in each of {recipe.micro_batches} parts" if recipe.micro_batches > 1 else ""
    message = (
        f"A step of {recipe.batch_size} images of {shape[0]}x{shape[1]} pixels may need about {needed / 2**30:.1f} GiB "
        f"of memory{parts}, and {free / 2**30:.1f} GiB are free: {_REMEDY}."
    )
    if needed > _BEYOND * free and check == _REFUSE and shards == 1 and not resumed:
        raise ValueError(
            f"{message} To try it nevertheless, set {CHECK_VARIABLE}={_NOTE}. "
            f"Received: batch_size={recipe.batch_size}, micro_batches={recipe.micro_batches}"
        )
    if needed > _TIGHT * free:
        print(f"note: {message}", file=sys.stderr, flush=True)


def _check() -> str:
    check = os.environ.get(CHECK_VARIABLE) or _REFUSE
    if check not in CHECKS:
        raise ValueError(f"{CHECK_VARIABLE} must be refuse, note or off. Received: {check!r}")
    return check


def _workers_here(shards: int) -> int:
    """Of the processes that share a batch, those on this one's machine, by their addresses; 1 where none are known."""
    try:
        if jax := os.environ.get("KERAS_DISTRIBUTION_JOB_ADDRESSES"):
            addresses, rank = jax.split(","), int(os.environ["KERAS_DISTRIBUTION_PROCESS_ID"])
        else:
            config = json.loads(os.environ["TF_CONFIG"])
            chiefs, task = config["cluster"].get("chief", []), config["task"]
            addresses = [*chiefs, *config["cluster"].get("worker", [])]
            rank = int(task["index"]) + (len(chiefs) if task["type"] == "worker" else 0)
        hosts = [address.rpartition(":")[0] for address in addresses]
        return hosts.count(hosts[rank]) if len(hosts) == shards else 1
    except (KeyError, ValueError, IndexError, TypeError):
        return 1


@contextlib.contextmanager
def explained_memory(recipe) -> Iterator[None]:
    """Turns the errors of the backends' GPUs that have run out of memory into one that names the remedy.

    Raises:
        MemoryError: In their place.
    """
    try:
        yield
    except Exception as error:
        message = f"{type(error).__name__} {error}"
        if not (_EXHAUSTED.search(message) and _OF_MEMORY.search(message)):
            raise
        received = "".join(
            f", {name}={getattr(recipe, name)}" for name in ("batch_size", "micro_batches") if hasattr(recipe, name)
        )
        raise MemoryError(f"A step does not fit into memory: {_REMEDY}. Received: {recipe.name}{received}") from error
