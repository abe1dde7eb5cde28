"""The recurrence of an LSTM and its derivative, with every product that can wait taken out of the loop."""

from typing import Any

import keras
from keras import ops

from keras_highway._support.numerics import with_gradient


def recur(projected: Any, kernel: Any, h: Any, c: Any) -> tuple[Any, Any, Any]:
    """Run an LSTM over projected inputs.

    Differentiating a loop step by step would add a product for the recurrent
    kernel's gradient at each step. Here the backward loop carries only the
    state's derivative; the kernel's gradient is one product over all steps
    after it. The products are in the dtype of `kernel`; gates and state are
    float32, or float64 with a kernel of it.
    """
    # Copies: TensorFlow's custom gradients refuse variables, and converting one to a tensor gives the variable itself.
    return _recurrence(*(ops.copy(x) for x in (projected, kernel, h, c)))


@with_gradient
def _recurrence(projected: Any, kernel: Any, h: Any, c: Any) -> tuple[Any, Any]:
    wide = "float64" if keras.backend.standardize_dtype(kernel.dtype) == "float64" else "float32"
    first_h, first_c = ops.cast(h, wide), ops.cast(c, wide)

    def step(state: Any, z: Any) -> tuple[Any, Any]:
        recurrent = ops.matmul(ops.cast(state[0], kernel.dtype), kernel)
        state = _cell(ops.cast(z, wide) + ops.cast(recurrent, wide), state[1])
        return state, state  # TensorFlow's scan wants outputs of the carry's form: the gates travel in it, too

    by_step = ops.swapaxes(projected, 0, 1)
    start = (first_h, first_c, ops.zeros_like(ops.cast(by_step[0], wide)))
    (last_h, last_c, _), (outputs, cells, gates) = ops.scan(step, start, by_step)  # pyright: ignore[reportGeneralTypeIssues]

    def gradient(dy: Any, last_dh: Any, last_dc: Any) -> tuple[Any, Any, Any, Any]:
        cells_before = ops.concatenate([first_c[None], cells[:-1]])
        transposed, units = ops.transpose(kernel), kernel.shape[0]

        def back(state: Any, saved: Any) -> tuple[Any, Any]:
            dh, dc, _ = state
            parts: Any = ops.split(saved, [units, 5 * units, 6 * units], axis=-1)
            dy, gates, c, c_before = parts
            dz, dc = _cell_gradient(dh + dy, dc, gates, c, c_before)
            dh = ops.cast(ops.matmul(ops.cast(dz, kernel.dtype), transposed), wide)
            return (dh, dc, dz), (dh, dc, dz)

        # One tensor: of several, TensorFlow's scan cannot take an open number of steps (docs/upstream.md).
        saved = ops.concatenate([ops.swapaxes(ops.cast(dy, wide), 0, 1), gates, cells, cells_before], axis=-1)
        start = (ops.cast(last_dh, wide), ops.cast(last_dc, wide), ops.zeros_like(gates[0]))
        (dh, dc, _), (_, _, dz) = ops.scan(back, start, saved, reverse=True)  # pyright: ignore[reportGeneralTypeIssues]
        before = ops.concatenate([first_h[None], outputs[:-1]])
        flat = [ops.cast(ops.reshape(x, (-1, x.shape[-1])), kernel.dtype) for x in (before, dz)]
        d_kernel = ops.matmul(ops.transpose(flat[0]), flat[1])
        d_projected = ops.cast(ops.swapaxes(dz, 0, 1), projected.dtype)
        return d_projected, d_kernel, ops.cast(dh, h.dtype), ops.cast(dc, c.dtype)

    return (ops.swapaxes(outputs, 0, 1), last_h, last_c), gradient


def _cell(z: Any, c: Any) -> tuple[Any, Any, Any]:
    """One step: gates from `z`, `(streams, 4 * units)`, and the cell before; returns output, cell and gates."""
    i, f, g, o = ops.split(z, 4, axis=-1)  # pyright: ignore[reportGeneralTypeIssues]
    i, f, g, o = ops.sigmoid(i), ops.sigmoid(f), ops.tanh(g), ops.sigmoid(o)
    c = f * c + i * g
    return o * ops.tanh(c), c, ops.concatenate([i, f, g, o], axis=-1)


def _cell_gradient(dh: Any, dc: Any, gates: Any, c: Any, c_before: Any) -> tuple[Any, Any]:
    """Return the derivatives of a step's `z` and of the cell before it, from those of its output and cell."""
    i, f, g, o = ops.split(gates, 4, axis=-1)  # pyright: ignore[reportGeneralTypeIssues]
    t = ops.tanh(c)
    dc = dc + dh * o * (1 - t * t)
    dz = (dc * g * i * (1 - i), dc * c_before * f * (1 - f), dc * i * (1 - g * g), dh * t * o * (1 - o))
    return ops.concatenate(dz, axis=-1), dc * f
