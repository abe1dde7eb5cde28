"""Where gradients that are long sums are lost: what backends add up in 16 bits."""

import keras

# By backend, dtypes in which the derivative of a broadcast adds up on CPU; nothing is known of others.
_LOSSY = {"tensorflow": ("float16",), "jax": ("bfloat16", "float16")}


def loses_sums(dtype) -> bool:
    """Whether the derivative of a broadcast adds up in this dtype, which loses most of a long sum of like terms.

    Args:
        dtype: A dtype or its name.
    """
    return keras.backend.standardize_dtype(dtype) in _LOSSY.get(keras.backend.backend(), ())
