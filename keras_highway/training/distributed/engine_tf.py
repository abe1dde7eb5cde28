"""Training and test steps on TensorFlow: one graph per step, under any strategy."""

import tensorflow as tf

from keras_highway.training.program import Trainable


class TensorFlowEngine:
    """Runs a program's steps.

    Args:
        program: What to compute.
        strategy: Runs a function on every replica and sums what it returns.
    """

    def __init__(self, program: Trainable, strategy):
        self._program, self._strategy = program, strategy
        layers = program.net._flatten_layers()  # pyright: ignore[reportPrivateUsage] (Keras has no public way to them)
        self.jit_compile = strategy.jit_compile and all(layer.supports_jit for layer in layers)
        self._train = tf.function(self._train_step, jit_compile=self.jit_compile)
        self._test = tf.function(self._test_step, jit_compile=self.jit_compile)

    def train(self, batch):
        """Take a step on a host's part of a batch; returns the program's `sums` over the batch, on the device."""
        return self._train(self._strategy.put(batch), self._program.phase)

    def test(self, batch):
        """Returns the program's `sums` over a test batch, on the device."""
        return self._test(self._strategy.put(batch))

    def sync(self) -> None:
        """Variables are always up to date."""

    def _train_step(self, batch, _phase):  # a Python value: another phase is another graph
        sums = self._strategy.run(self._replica_step, batch)
        decay = self._program.recipe.ema
        for average, variable in zip(self._program.averages, self._program.averaged, strict=True):
            # Outside of the replicas, where a mirrored variable can be assigned and batch statistics be read.
            average.value.assign(decay * average.value + (1 - decay) * variable.value)
        return sums

    def _test_step(self, batch):
        return self._strategy.run(self._program.test_sums, batch)

    def _replica_step(self, batch):
        program, parts = self._program, self._program.recipe.micro_batches
        variables = program.net.trainable_variables
        gradients = sums = None
        for i in range(parts):
            # Every parts-th sample: the same division on any number of replicas would need samples to move.
            part = tuple(a[i::parts] for a in batch) if parts > 1 else batch
            with tf.GradientTape() as tape:
                loss, more = program.train_loss(part)
            # Dense: an embedding's gradient comes as slices, which cannot be added or divided.
            part_gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, [v.value for v in variables])]
            gradients = (
                part_gradients if gradients is None else [a + b for a, b in zip(gradients, part_gradients, strict=True)]
            )
            sums = more if sums is None else sums + more
        program.optimizer.apply(self._clipped(gradients), variables)
        return sums

    def _clipped(self, gradients):
        """Clips after the sum over replicas, where Keras's own options clip before it: wrong with several."""
        if self._program.recipe.clip_norm is None:
            return self._program.clipped(gradients)
        gradients, replicas = self._strategy.summed(gradients)
        # The optimizer sums over replicas again.
        return [g / replicas for g in self._program.clipped(gradients)]
