"""Loss scaling in float16, which Keras's `compile` adds by the policy of the model itself."""

from typing import Any

import keras


def scale_losses_as(model: keras.Model, dtype: Any) -> None:
    """Lets `compile` scale losses where the policy of a model's layers is `"mixed_float16"`.

    Keras wraps the optimizer in a `LossScaleOptimizer` where the model's own
    policy is `"mixed_float16"`, and a functional model has the global one,
    whatever its layers'. Without it the small gradients of float16 are zero.

    Args:
        model: A functional model; inputs and layers are as before.
        dtype: Dtype policy of its layers, or another model, whose policy it
            gets. Other policies change nothing.
    """
    policy = dtype.dtype_policy if isinstance(dtype, keras.Model) else keras.dtype_policies.get(dtype)
    if policy.name == "mixed_float16":
        model.dtype_policy = policy
