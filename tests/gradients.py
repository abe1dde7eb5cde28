"""Loss and gradients of any function of variables, on every backend."""

import keras
from contracts import to_numpy
from keras import ops


def value_and_gradients(function, model):
    """Differentiates a function of no arguments by the trainable variables of a model or a layer.

    Returns:
        Its value, and a list of arrays.
    """
    variables = model.trainable_variables

    def of(values):
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return function()

    values = [ops.convert_to_tensor(ops.convert_to_numpy(v)) for v in variables]
    if keras.backend.backend() == "jax":
        import jax

        value, gradients = jax.jit(jax.value_and_grad(of))(values)
    elif keras.backend.backend() == "torch":
        import torch

        values = [v.detach().requires_grad_() for v in values]
        value = of(values)
        gradients = torch.autograd.grad(value, values)
        value = value.detach()
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(values)
            value = of(values)
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(value, values)]
    return to_numpy(value), [to_numpy(g) for g in gradients]
