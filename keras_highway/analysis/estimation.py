"""Unrolled iterative estimation: how far each block's output is from its stage's last [UIE]."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_highway.analysis.batches import Moments, batches, samples_of
from keras_highway.analysis.graph import kept_state, stages
from keras_highway.analysis.trace import Tracer


class EstimationError(NamedTuple):
    """The estimation error `a_k − A` of a stage's blocks, `A` being the stage's last output [UIE, Eq. 1].

    Attributes:
        blocks: Names of the stage's blocks, in the order of the network.
        mean: float64 `(blocks,)`: the mean over samples of each unit's error,
            averaged over positions and channels. 0 where the blocks estimate
            without bias. The last is 0 by definition.
        std: float64 `(blocks,)`: the standard deviation over samples of each
            unit's error, averaged over positions and channels. It shrinks
            where the blocks refine. The last is 0 by definition.
        unit_mean: float64 `(blocks, ...)`, the mean of every unit, in the
            shape of one sample's output.
        unit_std: float64 `(blocks, ...)`, its standard deviation.
        scale: Float, the standard deviation over samples of `A` itself,
            averaged over positions and channels: the unit in which an error
            is large or small.
        samples: How many samples.
    """

    blocks: tuple[str, ...]
    mean: np.ndarray
    std: np.ndarray
    unit_mean: np.ndarray
    unit_std: np.ndarray
    scale: float
    samples: int


class MinimumVariance(NamedTuple):
    """The best unbiased combination `weight_a·a + weight_b·b` of two noisy estimates.

    Attributes:
        weight_a: float64 array; `weight_a + weight_b = 1`.
        weight_b: float64 array. In a highway block that mixes `a = x` and
            `b = h`, it is what the transform gate should be.
        variance: float64 array, the variance of the combination's error.
    """

    weight_a: np.ndarray
    weight_b: np.ndarray
    variance: np.ndarray


def estimation_error(
    model: keras.Model,
    data: Iterable[Any],
    stage: str | None = None,
    *,
    batch_size: int = 200,
    transform: Callable[[Any], Any] | None = None,
    progress: bool = False,
) -> dict[str, EstimationError]:
    """Measures how far the output of each block is from the last output of its stage [UIE, 4.2 and Figure 3].

    If blocks refine one representation step by step, the error is zero in the
    mean, and its spread shrinks from block to block. As in the paper, mean
    and standard deviation are over the samples, a unit at a time, and are
    then averaged over the stage's positions and channels. Needs no learned
    gates: residual nets are what the paper measured.

    ```python
    for stage, error in estimation_error(model, images).items():
        print(stage, error.mean, error.std)
    ```

    Args:
        model: A functional `keras.Model` with gated blocks, for images of one
            size.
        data: An array of samples, or an iterable of batches; labels are
            ignored.
        stage: A stage's name, e.g. `"stage2"`. Defaults to `None`: all of
            them.
        batch_size: Int, samples at once. Defaults to `200`.
        transform: Function from a batch of `data` to the model's input.
        progress: Bool, whether to show a progress bar. Defaults to `False`.

    Returns:
        A dict from stage to `EstimationError`.

    Raises:
        ValueError: If the model has no blocks or no such stage, for data that
            are empty or of another shape, or if the blocks of a stage give
            different shapes.
    """
    tracer = Tracer(model)
    outputs = tracer.only("y")
    groups = _stages(outputs.output, stage)
    errors = {name: Moments() for names in groups.values() for name in names}
    targets = {group: Moments() for group in groups}
    samples = 0
    feed = batches(data, model, batch_size=batch_size, transform=transform, progress=progress)
    with kept_state(outputs):
        for x, _ in feed:
            signals = outputs(x, training=False)
            samples += samples_of(x, model)
            for group, names in groups.items():
                values = {name: np.asarray(ops.convert_to_numpy(ops.cast(signals[name], "float32"))) for name in names}
                target = values[names[-1]]
                targets[group].add(target)
                for name, value in values.items():
                    errors[name].add(_difference(value, target, name, names[-1]))
    return {
        group: _summary(names, [errors[name] for name in names], targets[group], samples)
        for group, names in groups.items()
    }


def minimum_variance(var_a: Any, var_b: Any, cov: Any = 0.0) -> MinimumVariance:
    """Returns the linear, unbiased combination of two estimates of a value that has the least variance.

    With `a` and `b` both right on average, the combination is right on
    average if its weights sum to 1, and its variance is least for [UIE,
    Appendix A, Eqs. 15-16]

        weight_a = (var_b − cov) / (var_a − 2·cov + var_b)
        weight_b = (var_a − cov) / (var_a − 2·cov + var_b)

    which is a coupled highway block with `t = weight_b`, `x = a`, `h = b`.
    Where the errors are independent, both weights are in [0, 1], and the
    gate's logit is `log(var_a / var_b)`.

    Args:
        var_a: Number or array, variance of the error of `a`.
        var_b: Number or array that broadcasts to it, that of `b`.
        cov: Number or array, covariance of the two errors. Defaults to
            `0.0`, independent errors.

    Returns:
        A `MinimumVariance` of arrays of the broadcast shape.

    Raises:
        ValueError: If a variance is negative, the covariance is larger than
            variances allow, or `a` and `b` are always equally wrong, so that
            every combination is equally good.
    """
    var_a, var_b, cov = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (var_a, var_b, cov)))
    if not ((var_a >= 0) & (var_b >= 0) & (np.square(cov) <= var_a * var_b * (1 + 1e-9))).all():
        raise ValueError(
            "Variances must not be negative, and cov² must be at most var_a·var_b. "
            f"Received: var_a={var_a.tolist()}, var_b={var_b.tolist()}, cov={cov.tolist()}"
        )
    spread = var_a - 2 * cov + var_b  # the variance of a − b
    if not (spread > 1e-12 * (var_a + var_b)).all():
        raise ValueError(
            "The two estimates are always equally wrong (var_a − 2·cov + var_b = 0), so no weights are better than "
            f"others. Received: var_a={var_a.tolist()}, var_b={var_b.tolist()}, cov={cov.tolist()}"
        )
    variance = np.maximum(var_a * var_b - np.square(cov), 0.0) / spread
    return MinimumVariance((var_b - cov) / spread, (var_a - cov) / spread, variance)


def _stages(names: Iterable[str], chosen: str | None) -> dict[str, list[str]]:
    groups = stages(names)
    if chosen is None:
        return groups
    if chosen not in groups:
        raise ValueError(f"The model has no such stage; it has {', '.join(groups)}. Received: stage={chosen!r}")
    return {chosen: groups[chosen]}


def _difference(value: np.ndarray, target: np.ndarray, name: str, last: str) -> np.ndarray:
    if value.shape != target.shape:
        raise ValueError(
            "The blocks of a stage must give one shape, else there is no common representation to estimate. "
            f"Received: {name!r} of shape {value.shape}, {last!r} of shape {target.shape}"
        )
    return value.astype(np.float64) - target


def _summary(names: Sequence[str], moments: Sequence[Moments], target: Moments, samples: int) -> EstimationError:
    unit_mean = np.stack([m.mean for m in moments])
    unit_std = np.sqrt(np.stack([m.variance for m in moments]))
    over = tuple(range(1, unit_mean.ndim))
    scale = float(np.sqrt(target.variance).mean())
    return EstimationError(tuple(names), unit_mean.mean(over), unit_std.mean(over), unit_mean, unit_std, scale, samples)
