"""Training and test steps on JAX: pure functions of the run's variables, compiled by XLA."""

import jax
import keras

from keras_highway.training.program import Trainable


class JaxEngine:
    """Runs a program's steps; the variables' values live here between `sync` calls.

    Args:
        program: What to compute.
        strategy: Places batches on the devices.
    """

    jit_compile = True

    def __init__(self, program: Trainable, strategy):
        self._program, self._strategy = program, strategy
        self._values = None
        self._train = jax.jit(self._train_step, donate_argnums=0, static_argnums=3)
        self._test = jax.jit(self._test_step)

    def train(self, batch):
        """Take a step on a host's part of a batch; returns the program's `sums` over the batch, on the device."""
        if self._values is None:
            self._values = self._groups(lambda variable: variable.value)
        self._values, sums = self._train(self._values, self._fixed(), self._strategy.put(batch), self._program.phase)
        return sums

    def test(self, batch):
        """Returns the program's `sums` over a test batch, on the device."""
        self.sync()
        net = [v.value for v in self._program.net.variables]
        return self._test(net, self._fixed(), self._strategy.put(batch))

    def sync(self) -> None:
        """Brings the variables up to date."""
        if self._values is None:
            return
        for variables, values in zip(self._groups(lambda variable: variable), self._values, strict=True):
            for variable, value in zip(variables, values, strict=True):
                variable._value = value  # as Keras's own JAX trainer does: assign would copy and re-place it
        self._values = None

    def _groups(self, get):
        program = self._program
        groups = (
            program.net.trainable_variables,
            program.net.non_trainable_variables,
            program.optimizer.variables,
            program.averages,
        )
        return tuple([get(variable) for variable in group] for group in groups)

    def _fixed(self):
        return [v.value for v in self._program.fixed]

    def _train_step(self, values, fixed, batch, _phase):  # another phase is compiled anew
        program = self._program
        trained, others, slots, averages = values
        (_, (sums, others)), gradients = self._gradients(trained, others, fixed, batch)
        gradients = program.clipped(gradients)
        trained, slots = program.optimizer.stateless_apply(slots, gradients, trained)
        if averages:
            current = dict(zip(map(id, program.net.trainable_variables), trained, strict=True))
            current.update(zip(map(id, program.net.non_trainable_variables), others, strict=True))
            decay = program.recipe.ema
            averages = [
                decay * average + (1 - decay) * current[id(variable)]
                for average, variable in zip(averages, program.averaged, strict=True)
            ]
        return (trained, others, slots, averages), sums

    def _gradients(self, trained, others, fixed, batch):
        """Loss, sums, new non-trainable values and gradients, over the micro-batches in turn."""
        differentiate = jax.value_and_grad(self._objective, has_aux=True)
        parts = self._program.recipe.micro_batches
        if parts == 1:
            return differentiate(trained, others, fixed, batch)
        split = jax.tree.map(lambda a: a.reshape(a.shape[0] // parts, parts, *a.shape[1:]).swapaxes(0, 1), batch)

        def add(carry, part):
            loss, sums, others, gradients = carry
            (more, (more_sums, others)), more_gradients = differentiate(trained, others, fixed, part)
            total = jax.tree.map(lambda a, b: a + b, gradients, more_gradients)
            return (loss + more, sums + more_sums, others, total), None

        shapes = jax.eval_shape(differentiate, trained, others, fixed, jax.tree.map(lambda a: a[0], split))
        (loss, (sums, _)), gradients = jax.tree.map(lambda s: jax.numpy.zeros(s.shape, s.dtype), shapes)
        (loss, sums, others, gradients), _ = jax.lax.scan(add, (loss, sums, others, gradients), split)
        return (loss, (sums, others)), gradients

    def _objective(self, trained, others, fixed, batch):
        program = self._program
        mapping = [
            *zip(program.net.trainable_variables, trained, strict=True),
            *zip(program.net.non_trainable_variables, others, strict=True),
            *zip(program.fixed, fixed, strict=True),
        ]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            loss, sums = program.train_loss(batch)
        new = [scope.get_current_value(variable) for variable in program.net.non_trainable_variables]
        others = [value if update is None else update for value, update in zip(others, new, strict=True)]
        return loss, (sums, others)

    def _test_step(self, net, fixed, batch):
        program = self._program
        mapping = [*zip(program.net.variables, net, strict=True), *zip(program.fixed, fixed, strict=True)]
        with keras.StatelessScope(state_mapping=mapping):
            return program.test_sums(batch)
