"""SGD as the papers used it: L2 on kernels through the gradient, biases at their own rate."""

import keras


@keras.saving.register_keras_serializable(package="keras_highway_training")
class PaperSGD(keras.optimizers.SGD):
    """SGD with momentum whose L2 penalty and bias rate enter through the gradient, as in Caffe.

    `g = (dL/dw + weight_decay * w)` for kernels, `g = bias_multiplier *
    dL/db` for biases and other vectors, then Keras's momentum step. Since the
    step is linear in g, the factor on a bias's gradient is one on its rate.
    Keras's own `SGD(weight_decay=...)` is decoupled, `w -= rate * decay * w`
    outside the momentum: another recipe.

    Args:
        learning_rate: Float or schedule.
        momentum: Float. Defaults to `0.9`.
        nesterov: Bool. Defaults to `True`.
        l2: Float, the penalty is `l2 / 2 * |w|^2` over kernels (variables
            with `kernel` in their name). Defaults to `0.0`.
        bias_multiplier: Float, factor on the rate of all others. Defaults to
            `1.0`.
    """

    def __init__(self, learning_rate=0.01, momentum=0.9, nesterov=True, l2=0.0, bias_multiplier=1.0, **kwargs):
        super().__init__(learning_rate, momentum=momentum, nesterov=nesterov, **kwargs)
        self.l2, self.bias_multiplier = float(l2), float(bias_multiplier)

    def apply(self, grads, trainable_variables=None):
        variables = self._trainable_variables if trainable_variables is None else trainable_variables
        return super().apply(
            [self._paper_gradient(g, v) for g, v in zip(grads, variables, strict=True)], trainable_variables
        )

    def _paper_gradient(self, gradient, variable):
        if gradient is None:
            return None
        if "kernel" in variable.name:
            return gradient + self.l2 * keras.ops.convert_to_tensor(variable) if self.l2 else gradient
        return gradient * self.bias_multiplier

    def get_config(self):
        return {**super().get_config(), "l2": self.l2, "bias_multiplier": self.bias_multiplier}
