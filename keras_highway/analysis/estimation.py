"""Unrolled iterative estimation: the error of each block against the last output of its stage [UIE]."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_highway._support.schema import check_choice
from keras_highway.analysis.trace import Moments, Tracer, batches, kept_state, samples_of, stages


class EstimationError(NamedTuple):
    """Estimation error `a_k − A` of the blocks of a stage; `A` is the last output of the stage [UIE, Eq. 1].

    Attributes:
        blocks: Names of the blocks, in the order of the network.
        mean: float64 `(blocks,)`: the mean error of each unit over samples,
            averaged over positions and channels. 0 for an unbiased estimate.
            The last is 0 by definition.
        std: float64 `(blocks,)`: the standard deviation of the error of each
            unit over samples, averaged over positions and channels. It shrinks
            where the blocks refine. The last is 0 by definition.
        unit_mean: float64 `(blocks, ...)`, the mean of every unit, in the
            shape of the output for one sample.
        unit_std: float64 `(blocks, ...)`, the standard deviation.
        scale: Float, the standard deviation of `A` over samples, averaged over
            positions and channels. Compare the errors with it.
        samples: Number of samples.
    """

    blocks: tuple[str, ...]
    mean: np.ndarray
    std: np.ndarray
    unit_mean: np.ndarray
    unit_std: np.ndarray
    scale: float
    samples: int


class MinimumVariance(NamedTuple):
    """Best unbiased combination `weight_a·a + weight_b·b` of two noisy estimates.

    Attributes:
        weight_a: float64 array; `weight_a + weight_b = 1`.
        weight_b: float64 array. The ideal transform gate of a highway block
            that mixes `a = x` and `b = h`.
        variance: float64 array, the variance of the error of the combination.
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
    """Measure the difference between the output of each block and the last output of its stage [UIE, 4.2 and Figure 3].

    If blocks refine one representation step by step, the mean error is zero
    and its spread shrinks from block to block. As in the paper, mean and
    standard deviation are over the samples, for each unit, and then averaged
    over positions and channels. Works without learned gates: the paper
    measured residual nets.

    ```python
    for stage, error in estimation_error(model, images).items():
        print(stage, error.mean, error.std)
    ```

    See `gate_activity` for the other arguments.

    Args:
        model: A functional `keras.Model` with gated blocks. All images must
            have one size.
        data: An array of samples, or an iterable of batches. Labels are
            ignored.
        stage: Name of a stage, e.g. `"stage2"`. Defaults to `None`, all stages.

    Returns:
        A dict from stage to `EstimationError`.

    Raises:
        ValueError: If the model has no blocks, the stage is unknown, the data are
            empty or do not fit, or the blocks of a stage have outputs of
            different shapes.
    """
    tracer = Tracer(model)
    outputs = tracer.only("y")
    groups = stages(outputs.output)
    if stage is not None:
        check_choice("stage", stage, groups)
        groups = {stage: groups[stage]}
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
    """Return the linear unbiased combination of two estimates with the least variance.

    If `a` and `b` are right on average, so is a combination whose weights sum
    to 1. Its variance is least for [UIE, Appendix A, Eqs. 15-16]

        weight_a = (var_b − cov) / (var_a − 2·cov + var_b)
        weight_b = (var_a − cov) / (var_a − 2·cov + var_b)

    which is a coupled highway block with `t = weight_b`, `x = a`, `h = b`.
    For independent errors both weights are in [0, 1], and the logit of the
    gate is `log(var_a / var_b)`.

    Args:
        var_a: Number or array, variance of the error of `a`.
        var_b: Number or array that broadcasts to it, variance of the error of
            `b`.
        cov: Number or array, covariance of the two errors. Defaults to `0.0`.

    Returns:
        A `MinimumVariance` of arrays of the broadcast shape.

    Raises:
        ValueError: If a variance is negative, the covariance is too large, or
            `a` and `b` always have equal errors.
    """
    var_a, var_b, cov = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (var_a, var_b, cov)))
    possible = (var_a >= 0) & (var_b >= 0) & (np.square(cov) <= var_a * var_b * (1 + 1e-9))
    spread = var_a - 2 * cov + var_b  # the variance of a − b
    if not (possible & (spread > 1e-12 * (var_a + var_b))).all():
        raise ValueError(
            "Variances must be at least 0, with cov² ≤ var_a·var_b and var_a − 2·cov + var_b > 0. "
            f"Received: var_a={var_a.tolist()}, var_b={var_b.tolist()}, cov={cov.tolist()}"
        )
    variance = np.maximum(var_a * var_b - np.square(cov), 0.0) / spread
    return MinimumVariance((var_b - cov) / spread, (var_a - cov) / spread, variance)


def _difference(value: np.ndarray, target: np.ndarray, name: str, last: str) -> np.ndarray:
    if value.shape != target.shape:
        raise ValueError(
            "The blocks of a stage must have outputs of one shape. "
            f"Received: {name!r} of shape {value.shape}, {last!r} of shape {target.shape}"
        )
    return value.astype(np.float64) - target


def _summary(names: Sequence[str], moments: Sequence[Moments], target: Moments, samples: int) -> EstimationError:
    unit_mean = np.stack([m.mean for m in moments])
    unit_std = np.sqrt(np.stack([m.variance for m in moments]))
    over = tuple(range(1, unit_mean.ndim))
    scale = float(np.sqrt(target.variance).mean())
    return EstimationError(tuple(names), unit_mean.mean(over), unit_std.mean(over), unit_mean, unit_std, scale, samples)
