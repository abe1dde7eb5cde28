"""Training and test steps on each backend."""

import keras

from keras_highway.training.program import Program


class Engine:
    """Runs a program's steps: `train` and `test` return the program's `sums` over a batch, on the device."""

    jit_compile = False

    def __init__(self, program: Program, strategy):
        self._program, self._strategy = program, strategy

    def sync(self) -> None:
        """Bring the variables up to date."""

    def _accumulated(self, batch, gradients_of):
        """Return gradients and `sums` over the micro-batches, by a function from a batch to both."""
        parts = self._program.recipe.micro_batches
        gradients = sums = None
        for i in range(parts):
            # Every parts-th sample: the same division on any number of replicas would need samples to move.
            more_gradients, more = gradients_of(tuple(a[i::parts] for a in batch) if parts > 1 else batch)
            if gradients is None:
                gradients, sums = more_gradients, more
            else:
                gradients = [a + b for a, b in zip(gradients, more_gradients, strict=True)]
                sums = sums + more
        return gradients, sums


class TensorFlowEngine(Engine):
    """One graph per step, under any strategy."""

    def __init__(self, program: Program, strategy):
        import tensorflow as tf

        super().__init__(program, strategy)
        layers = program.net._flatten_layers()  # pyright: ignore[reportPrivateUsage] (Keras has no public way to them)
        self.jit_compile = strategy.jit_compile and all(layer.supports_jit for layer in layers)
        self._train = tf.function(self._train_step, jit_compile=self.jit_compile)
        self._test = tf.function(self._test_step, jit_compile=self.jit_compile)

    def train(self, batch):
        return self._train(self._strategy.put(batch), self._program.phase)

    def test(self, batch):
        return self._test(self._strategy.put(batch))

    def _train_step(self, batch, _phase):  # a Python value: another phase is another graph
        sums = self._strategy.run(self._replica_step, batch)
        decay = self._program.recipe.ema
        for average, variable in zip(self._program.averages, self._program.averaged, strict=True):
            # Outside of the replicas a mirrored variable can be assigned and batch statistics can be read.
            average.value.assign(decay * average.value + (1 - decay) * variable.value)
        return sums

    def _test_step(self, batch):
        return self._strategy.run(self._program.test_sums, batch)

    def _replica_step(self, batch):
        gradients, sums = self._accumulated(batch, self._gradients)
        self._program.optimizer.apply(self._clipped(gradients), self._program.net.trainable_variables)
        return sums

    def _gradients(self, batch):
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss, sums = self._program.train_loss(batch)
        gradients = tape.gradient(loss, [v.value for v in self._program.net.trainable_variables])
        return [tf.convert_to_tensor(g) for g in gradients], sums  # dense: an embedding's slices cannot be added

    def _clipped(self, gradients):
        """Clip after the sum over replicas; Keras's own options clip before it, which differs with several."""
        if self._program.recipe.clip_norm is None:
            return self._program.clipped(gradients)
        gradients, replicas = self._strategy.summed(gradients)
        return [g / replicas for g in self._program.clipped(gradients)]  # the optimizer sums over replicas again


class TorchEngine(Engine):
    """Operation by operation, on one device; sums are arrays."""

    def train(self, batch):
        import torch  # pyright: ignore[reportMissingImports] (an extra)

        program = self._program
        # Keras's Dropout draws from PyTorch's own generator, which no checkpoint holds: seed it in each step.
        torch.manual_seed(1_000_003 * program.recipe.seed + int(program.optimizer.iterations.value))
        variables = program.net.trainable_variables

        def gradients_of(batch):
            loss, sums = program.train_loss(batch)
            return torch.autograd.grad(loss, [v.value for v in variables]), sums.detach()

        gradients, sums = self._accumulated(self._strategy.put(batch), gradients_of)
        with torch.no_grad():
            program.optimizer.apply(program.clipped(gradients), variables)
            decay = program.recipe.ema
            for average, variable in zip(program.averages, program.averaged, strict=True):
                average.assign(decay * average.value + (1 - decay) * variable.value)
        return sums.cpu().numpy()

    def test(self, batch):
        import torch  # pyright: ignore[reportMissingImports] (an extra)

        with torch.no_grad():
            return self._program.test_sums(self._strategy.put(batch)).cpu().numpy()


class JaxEngine(Engine):
    """Pure functions of the run's variables, compiled by XLA; the values live here between `sync` calls."""

    jit_compile = True

    def __init__(self, program: Program, strategy):
        import jax

        super().__init__(program, strategy)
        self._values = None
        self._train = jax.jit(self._train_step, donate_argnums=0, static_argnums=3)
        self._test = jax.jit(self._test_step)

    def train(self, batch):
        if self._values is None:
            self._values = self._groups(lambda variable: variable.value)
        self._values, sums = self._train(self._values, self._fixed(), self._strategy.put(batch), self._program.phase)
        return sums

    def test(self, batch):
        self.sync()
        net = [v.value for v in self._program.net.variables]
        return self._test(net, self._fixed(), self._strategy.put(batch))

    def sync(self) -> None:
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

    def _train_step(self, values, fixed, batch, _phase):  # another phase is compiled again
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
        import jax

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
