"""Training and test steps on PyTorch: operation by operation, on one device."""

import torch  # pyright: ignore[reportMissingImports] (an extra)

from keras_highway.training.program import Trainable


class TorchEngine:
    """Runs a program's steps.

    Args:
        program: What to compute.
        strategy: Places batches on the device.
    """

    jit_compile = False

    def __init__(self, program: Trainable, strategy):
        self._program, self._strategy = program, strategy

    def train(self, batch):
        """Take a step on a batch; returns the program's `sums` over it, as an array."""
        program, parts = self._program, self._program.recipe.micro_batches
        # Keras's Dropout draws from PyTorch's own generator, which no checkpoint holds: it begins anew in each step.
        torch.manual_seed(1_000_003 * program.recipe.seed + int(program.optimizer.iterations.value))
        batch = self._strategy.put(batch)
        variables = program.net.trainable_variables
        gradients = sums = None
        for i in range(parts):
            loss, more = program.train_loss(tuple(a[i::parts] for a in batch))
            part_gradients = torch.autograd.grad(loss, [v.value for v in variables])
            gradients = (
                part_gradients if gradients is None else [a + b for a, b in zip(gradients, part_gradients, strict=True)]
            )
            sums = more.detach() if sums is None else sums + more.detach()
        with torch.no_grad():
            program.optimizer.apply(program.clipped(gradients), variables)
            decay = program.recipe.ema
            for average, variable in zip(program.averages, program.averaged, strict=True):
                average.assign(decay * average.value + (1 - decay) * variable.value)
        return sums.cpu().numpy()

    def test(self, batch):
        """Returns the program's `sums` over a test batch, as an array."""
        with torch.no_grad():
            return self._program.test_sums(self._strategy.put(batch)).cpu().numpy()

    def sync(self) -> None:
        """Variables are always up to date."""
