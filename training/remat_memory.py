"""What `remat` saves: bytes that the forward pass of a training step keeps for its gradient.

Counted on JAX from the function's shapes, nothing is run: what `jax.vjp` hands
from the forward pass to the backward pass, weights included. (XLA's own
`memory_analysis()` shows no difference on a CPU, where XLA merges the second
computation with the first.)

    KERAS_BACKEND=jax python -m training.remat_memory highway110 --batch 128
"""

import argparse
import math
import sys

import keras

from keras_highway.applications import create_model


def kept_bytes(net: keras.Model, batch: int) -> int:
    """Returns the bytes that are kept between the two passes of a training step.

    Args:
        net: A functional model with a classifier that gives logits.
        batch: Number of images.

    Raises:
        ValueError: On another backend than JAX.
    """
    if keras.backend.backend() != "jax":
        raise ValueError(
            f"Kept bytes are counted on JAX: set KERAS_BACKEND=jax. Received: KERAS_BACKEND={keras.backend.backend()}"
        )
    import jax

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    state = [v.value for v in net.non_trainable_variables]

    def kept(trainable, images, labels):
        def objective(trainable):
            outputs: tuple = net.stateless_call(trainable, state, images, training=True)
            return loss(labels, outputs[0]), outputs[1]

        return jax.vjp(objective, trainable, has_aux=True)[1]

    trainable = [jax.ShapeDtypeStruct(tuple(v.shape), v.dtype) for v in net.trainable_variables]
    images = jax.ShapeDtypeStruct((batch, *net.input_shape[1:]), "float32")
    leaves = jax.tree.leaves(jax.eval_shape(kept, trainable, images, jax.ShapeDtypeStruct((batch,), "int32")))
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def main(argv=None) -> int:
    """Prints a line of a table for each variant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--dtype", help="a dtype policy, e.g. mixed_bfloat16")
    args = parser.parse_args(argv)
    print("| variant | image | batch | MiB kept | MiB with remat | ratio |\n|---|---|---|---|---|---|")
    for variant in args.variants:
        sizes = []
        for remat in (False, True):
            net = create_model(variant, remat=remat, classifier_activation=None, dtype=args.dtype)
            sizes.append(kept_bytes(net, args.batch) / 2**20)
        image = "x".join(map(str, net.input_shape[1:]))  # pyright: ignore[reportPossiblyUnboundVariable]
        numbers = f"{sizes[0]:,.0f} | {sizes[1]:,.0f} | {sizes[1] / sizes[0]:.2f}"
        print(f"| `{variant}` | {image} | {args.batch} | {numbers} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
