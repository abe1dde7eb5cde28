"""Whether a step fits into memory, estimated before the first one: a system that runs out kills without a word."""

import contextlib
import math
import sys
from collections.abc import Iterator

import keras

from keras_highway._support.memory import available_bytes
from keras_highway.analysis import cost
from keras_highway.data.transforms import TRANSFORMS
from keras_highway.training.program import Trainable

# Of ResNet50 at 224 pixels on TensorFlow's CPU 101 MB an image were measured, 1.6 times what `cost` counts.
_OF_ACTIVATIONS = 1.5
_OF_PARAMETERS = 3  # themselves, gradients and momentum
_MOST = 2000  # times the bytes of its input that an image may need; below it nothing is computed
_TIGHT = 0.8  # share of the free memory from which on a step is told of
_REMEDY = "compute it in parts, --set micro_batches=N (N divides batch_size), or take a smaller --set batch_size=N"


def step_bytes(program: Trainable, images: int, shape: tuple[int, int, int]) -> int:
    """Returns what a step needs at least.

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


def check_memory(program: Trainable, shards: int, accelerators: list[str]) -> None:
    """Raises a ValueError if a step cannot fit into the machine's memory; says so on stderr if it barely does.

    Of nets that look at images; on a GPU, whose library says itself what it
    lacks, and of nets whose blocks compute their insides again (`remat`),
    nothing is estimated.

    Args:
        program: What is to be trained.
        shards: Processes that share a batch.
        accelerators: The GPUs.
    """
    recipe, free = program.recipe, available_bytes()
    transform = TRANSFORMS.get(getattr(recipe, "transform", ""))
    if transform is None or accelerators or free is None or dict(recipe.overrides).get("remat"):
        return
    images = recipe.batch_size // shards // recipe.micro_batches
    shape = (*recipe.training_size(transform.size), transform.channels)
    if images * 4 * shape[0] * shape[1] * shape[2] * _MOST < _TIGHT * free:
        return
    needed = step_bytes(program, images, shape)
    parts = f" in each of {recipe.micro_batches} parts" if recipe.micro_batches > 1 else ""
    said = (
        f"A step of {recipe.batch_size} images of {shape[0]}x{shape[1]} pixels needs about {needed / 2**30:.1f} GiB of "
        f"memory{parts}, and {free / 2**30:.1f} GiB are free: {_REMEDY}."
    )
    if needed > free:
        raise ValueError(f"{said} Received: batch_size={recipe.batch_size}, micro_batches={recipe.micro_batches}")
    if needed > _TIGHT * free:
        print(f"note: {said}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def explained_memory(recipe) -> Iterator[None]:
    """Turns the errors of the backends' GPUs that have run out of memory into one that says what to do.

    Raises:
        MemoryError: In their place.
    """
    try:
        yield
    except Exception as error:
        said = f"{type(error).__name__} {error}"
        if not any(words in said for words in ("RESOURCE_EXHAUSTED", "ResourceExhausted", "OutOfMemory")):
            raise
        received = "".join(
            f", {name}={getattr(recipe, name)}" for name in ("batch_size", "micro_batches") if hasattr(recipe, name)
        )
        raise MemoryError(f"A step does not fit into memory: {_REMEDY}. Received: {recipe.name}{received}") from error
