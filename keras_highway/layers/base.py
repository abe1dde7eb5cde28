"""The base of all gated blocks: gates, weighted sum, stochastic depth, gradient checkpointing."""

import contextvars
import functools
import inspect
import numbers
from collections.abc import Iterator, Sequence
from typing import Any

import keras
from keras import ops

from keras_highway._support.keras_models import Shape
from keras_highway._support.schema import checked_size, refuse
from keras_highway.equation import mix
from keras_highway.gating import Signals, carry_gate_bias, check_gate_bias, check_gates, get_gating

PATHS = ("transform", "transform_gate", "carry_gate", "projection")
GATES = ("same", "pointwise", "low_rank", "channel", "tied")


class GatedBlock(keras.layers.Layer):
    """Base of all gated blocks, `y = h·t + x·c`.

    A subclass sets `self.transform` and defines `make_gate(bias, name)`, with
    which `add_gates` creates the layer of each learned gate. Gate layers give
    logits; the sigmoid runs in the skip dtype.

    Args:
        gating: One of `kh.GATINGS`. Defaults to `"coupled"`.
        gate_bias: Float, initial bias of the transform gate before the
            sigmoid; a learned carry gate starts at `-gate_bias`. Defaults to
            `-2.0`.
        gate: Kind of gates. Defaults to `"same"`.

            - `"same"`: the same layers as the transform.
            - `"pointwise"`: one 1x1 convolution (exclusive gating, He et al.
              2016).
            - `"low_rank"`: a bottleneck of `gate_rank` channels.
            - `"channel"`: one learned number per channel, independent of x.
            - `"tied"`: a gate layer that several blocks share. Its logits are
              the second input of the block, a pair with gating `"full"`.
        gate_rank: Int, the rank of `"low_rank"` gates.
        skip_dtype: Dtype of the skip connection, the gates and the sum.
            Defaults to `"float32"` under every dtype policy: in bfloat16, small
            h·t are lost when they are added to x. Float64 layers use float64.
        stochastic_depth: Float in [0, 1), probability that a sample skips the
            block in training (y = x). Defaults to `0.0`.
        remat: Bool, whether to use gradient checkpointing: the backward pass
            recomputes the block. This takes less memory and more time; results
            are the same. Defaults to `False`.

        Raises:
            ValueError: If an argument is invalid.
    """

    gates: tuple[str, ...] = GATES
    shared_transform = False

    def __init__(
        self,
        gating: str = "coupled",
        gate_bias: float = -2.0,
        gate: str = "same",
        gate_rank: int | None = None,
        skip_dtype: Any = "float32",
        stochastic_depth: float = 0.0,
        remat: bool = False,
        **kwargs: Any,
    ):
        # Without autocasting, x reaches us in its own precision; sublayers cast to theirs.
        super().__init__(autocast=False, **kwargs)
        self.gating = get_gating(gating).name
        self.gate_bias = check_gate_bias(gate_bias)
        refuse(
            (
                gate not in self.gates or (gate == "tied" and not get_gating(gating).learned_gates),
                f"`gate` of {type(self).__name__} must be one of {', '.join(map(repr, self.gates))}; 'tied' needs a "
                f"gating that learns a gate. Received: gate={gate!r}, gating={gating!r}",
            ),
            (
                not isinstance(stochastic_depth, numbers.Real) or not 0.0 <= stochastic_depth < 1.0,
                f"`stochastic_depth` must be in [0, 1). Received: stochastic_depth={stochastic_depth!r}",
            ),
        )
        self.gate = gate
        check_gates(self.gating, gate, gate_rank, stochastic_depth)
        self.gate_rank = None if gate_rank is None else checked_size(gate_rank, "gate_rank")
        self._requested_skip_dtype = skip_dtype_of(skip_dtype)
        self.skip_dtype = skip_dtype_of(skip_dtype, self.compute_dtype)
        self.stochastic_depth = float(stochastic_depth)
        self.remat = bool(remat)
        self.transform_gate = None
        self.carry_gate = None
        self.projection = None
        self.drop_path = None

    @property
    def second_inputs(self) -> tuple[str, ...]:
        """Names of the block's inputs after x: `"gate"`, `"kernels"`, both or none."""
        takes = {"gate": self.gate == "tied", "kernels": self.shared_transform}
        return tuple(name for name, needed in takes.items() if needed)

    @property
    def is_transition(self) -> bool:
        """Whether the block changes the shape, so that x goes through a projection."""
        return self.projection is not None

    def make_gate(self, bias: float, name: str) -> keras.layers.Layer:
        """Return an unbuilt layer that maps x to gate logits."""
        raise TypeError(f"{type(self).__name__} must define make_gate(bias, name)")

    def add_gates(self) -> None:
        """Create `transform_gate` and `carry_gate` if the gating learns them."""
        if self.gate == "tied":
            return
        learned = get_gating(self.gating).learned_gates
        if "t" in learned:
            self.transform_gate = self.make_gate(self.gate_bias, "transform_gate")
        if "c" in learned:
            self.carry_gate = self.make_gate(carry_gate_bias(self.gate_bias), "carry_gate")

    def build_paths(self, input_shape: Shape) -> None:
        """Build every sublayer and the drop path for an input shape."""
        for layer in (self.transform, self.transform_gate, self.carry_gate, self.projection):
            if layer is not None and not layer.built:
                layer.build(input_shape)
        if self.stochastic_depth:
            noise_shape = (None,) + (1,) * (len(input_shape) - 1)
            self.drop_path = keras.layers.Dropout(
                self.stochastic_depth, noise_shape=noise_shape, dtype=self.skip_dtype, name="drop_path"
            )
            self.drop_path.build(input_shape)
        freeze_sublayers(self)

    def signals(
        self, x: Any, gate: Any = None, kernels: Sequence[Any] | None = None, training: bool | None = None
    ) -> Signals:
        """Compute the terms of `y = h·t + x·c`.

        Args:
            x: Tensor, the block's input.
            gate: Logits of a tied gate (only with `gate="tied"`); with the
                gating `"full"` a pair, transform and carry.
            kernels: List of tensors, the kernels of a shared transform (only
                in blocks with `shared_transform=True`).
            training: Bool, as in a layer's call. Defaults to the caller's.

        Returns:
            `Signals(x, h, t, c)`. x is projected in a transition. h has the
            compute dtype, the others the skip dtype. Constant gates are
            Python numbers. A coupled carry gate is `None`.
        """
        learned = get_gating(self.gating).t == "learned"
        t = self._gate_value(self.transform_gate, "t", x, gate, training) if learned else 1.0
        h = self.transformed(x, kernels, **mode(training, self.transformed))
        return Signals(self._skip_input(x, training), h, t, self._carry_value(x, gate, training))

    def transformed(self, x: Any, kernels: Sequence[Any] | None = None, training: bool | None = None) -> Any:
        """Compute h. Blocks with a shared transform use the kernels."""
        return self.transform(x, **mode(training))

    def combine(self, signals: Signals, training: bool | None = None) -> Any:
        """Compute the output: `h·t + x·c`, stochastic depth, post-activation."""
        y = mix(*signals, dtype=self.skip_dtype)
        if self.drop_path is not None:
            y = signals.x + self.drop_path(y - signals.x, **mode(training))
        return self.finish(y)

    def finish(self, y: Any) -> Any:
        """Apply the post-activation, if the block has one."""
        return y

    def call(self, x: Any, gate: Any = None, kernels: Sequence[Any] | None = None, training: bool | None = None) -> Any:
        self._check_inputs(gate, kernels)
        if self.remat and training and not runs(self):
            return rematerialized(self, x, gate, kernels)
        # Passed on, for `stateless_call`, around which Keras keeps no mode.
        signals = self.signals(x, gate, kernels, **mode(training, self.signals))
        return self.combine(signals, **mode(training, self.combine))

    def skip(self, signals: Signals) -> Any:
        """Return the output with `t = 0`, a lesion of the block.

        This is `x·c` if the carry gate is learned, else `x`, also in a plain
        block.
        """
        c = 1.0 if signals.c is None or not get_gating(self.gating).has_skip else signals.c
        return self.finish(mix(signals.x, signals.h, 0.0, c, dtype=self.skip_dtype))

    def lesioned(self, x: Any, gate: Any = None, kernels: Sequence[Any] | None = None) -> Any:
        """Return `skip(signals(x, gate))` without computing the transform and its gate."""
        skip = self._skip_input(x)
        return self.skip(Signals(skip, skip, 0.0, self._carry_value(x, gate)))  # at t = 0, h only lends its shape

    def paths(self) -> Iterator[tuple[str, keras.layers.Layer]]:
        """Yield (attribute name, sublayer) of every path from x: transform, gates, projection."""
        for name in PATHS:
            layer = getattr(self, name)
            if layer is not None:
                yield name, layer

    def compute_output_spec(self, x: Any, gate: Any = None, kernels: Sequence[Any] | None = None, **kwargs: Any) -> Any:
        self._check_inputs(gate, kernels)
        shape = tuple(self.compute_output_shape(x.shape))
        for logits in self._tied_logits(gate).values() if self.gate == "tied" else ():
            if not broadcasts(tuple(logits.shape), shape):
                raise ValueError(
                    f"`gate` of {type(self).__name__} {self.name!r} must have a shape that broadcasts to the output. "
                    f"Received: gate of shape {tuple(logits.shape)}, output of shape {shape}"
                )
        return keras.KerasTensor(shape, dtype=self.skip_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "gating": self.gating,
            "gate_bias": self.gate_bias,
            "gate": self.gate,
            "gate_rank": self.gate_rank,
            "skip_dtype": self._requested_skip_dtype,  # for a copy of another dtype
            "stochastic_depth": self.stochastic_depth,
            "remat": self.remat,
        }

    def _check_inputs(self, gate: Any, kernels: Any) -> None:
        """Raise a ValueError for a second input that is missing or unused."""
        if self.gate == "tied":
            self._tied_logits(gate)
        refuse(
            (
                self.gate != "tied" and gate is not None,
                f"{type(self).__name__} {self.name!r} takes gate logits as a second input only with gate='tied'. "
                f"Received: gate={self.gate!r}",
            ),
            (
                self.shared_transform != (kernels is not None),
                f"Call {type(self).__name__} {self.name!r} as block(x, kernels=shared_kernels(x)) if and only if "
                f"shared_transform=True. Received: shared_transform={self.shared_transform}",
            ),
        )

    def _skip_input(self, x: Any, training: bool | None = None) -> Any:
        return ops.cast(x if self.projection is None else self.projection(x, **mode(training)), self.skip_dtype)

    def _carry_value(self, x: Any, gate: Any, training: bool | None = None) -> Any:
        """Return c: a tensor if it is learned, else 0.0, 1.0 or (coupled) `None`."""
        gating = get_gating(self.gating)
        if "c" not in gating.learned_gates:
            return gating.constant_carry
        return self._gate_value(self.carry_gate, "c", x, gate, training)

    def _gate_value(self, layer: Any, which: str, x: Any, gate: Any, training: bool | None) -> Any:
        logits = self._tied_logits(gate)[which] if self.gate == "tied" else layer(x, **mode(training))
        return ops.sigmoid(ops.cast(logits, self.skip_dtype))

    def _tied_logits(self, gate: Any) -> dict[str, Any]:
        """Logits of the shared gates, under `"t"` and `"c"`."""
        learned = get_gating(self.gating).learned_gates
        logits = list(gate) if isinstance(gate, (list, tuple)) else [] if gate is None else [gate]
        if len(logits) != len(learned):
            gates = ("gate=shared_gate(x)", "gate=(shared_gate(x), shared_carry_gate(x))")[len(learned) - 1]
            raise ValueError(
                f"{type(self).__name__} {self.name!r} with gate='tied' needs the logits of {len(learned)} gate(s): "
                f"call block(x, {gates}). Received: {'None' if gate is None else f'{len(logits)} tensors'}"
            )
        return dict(zip(learned, logits, strict=True))


def mode(training: bool | None, method: Any = None) -> dict[str, bool]:
    """Return `{"training": training}` for a sublayer or method that takes it, `{}` for `None`."""
    known = method is None or _takes_mode(getattr(method, "__func__", method))
    return {} if training is None or not known else {"training": training}


@functools.cache
def _takes_mode(function: Any) -> bool:
    return "training" in inspect.signature(function).parameters


def freeze_sublayers(layer: keras.layers.Layer) -> None:
    """Freeze the sublayers that `build` of a frozen layer has created; Keras does not."""
    if not layer.trainable:
        for part in layer._flatten_layers(include_self=False):  # pyright: ignore[reportPrivateUsage]
            part.trainable = False


def skip_dtype_of(dtype: Any, compute_dtype: str = "") -> str:
    """Return the name of the skip dtype; float64 in layers that compute in float64."""
    name = keras.backend.standardize_dtype(dtype)
    if "float" not in name:
        raise ValueError(f"`skip_dtype` must be a floating-point dtype. Received: skip_dtype={dtype!r}")
    return "float64" if compute_dtype == "float64" else name


def fresh(initializer: Any, index: int = 0) -> keras.initializers.Initializer:
    """Return a copy of an initializer with another seed, so that several kernels of a layer do not start equal.

    `index` is added to a given seed. Functions and initializers with a `keras.random.SeedGenerator` are returned
    unchanged.
    """
    if not hasattr(initializer, "get_config") or isinstance(
        getattr(initializer, "seed", None), keras.random.SeedGenerator
    ):
        return initializer
    config = initializer.get_config()
    if isinstance(config.get("seed"), int):
        config["seed"] += index
    return initializer.__class__.from_config(config)


def broadcasts(shape: Shape, to: Shape) -> bool:
    """Whether a shape can be broadcast to another; `None` is any size."""
    pairs = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(size in (1, None, full) or full is None for size, full in pairs)


def check_images(layer: Any, input_shape: Shape) -> None:
    """Raise a ValueError if the input does not have rank 4 and a known number of channels."""
    if len(input_shape) != 4 or input_shape[1 if layer.data_format == "channels_first" else -1] is None:
        raise ValueError(
            f"{type(layer).__name__} {layer.name!r} needs an input of rank 4, (batch, height, width, channels), with a "
            f"known number of channels. Received: input shape {tuple(input_shape)}"
        )


def check_padding(input_shape: Shape, axis: int, filters: int) -> int:
    """Return the input channels of a shortcut A; raise a ValueError if there are more than `filters`."""
    channels = input_shape[axis]
    if channels is None or channels > filters:
        raise ValueError(
            "projection='A' needs a known number of input channels, at most `filters`: use projection='B'. "
            f"Received: input shape {tuple(input_shape)}, filters={filters}"
        )
    return channels


def check_same_width(
    layer: keras.layers.Layer, argument: str, output_width: int | None, input_shape: Shape, axis: int = -1
) -> int:
    """Return the input width; raise a ValueError if the output width differs."""
    width = input_shape[axis]
    if width is None or output_width not in (None, width):
        plain = "keras.layers.Dense" if argument == "units" else "keras.layers.Conv2D"
        raise ValueError(
            f"`{argument}` of {type(layer).__name__} {layer.name!r} must equal the input width, because the layer adds "
            f"its input to its output. Leave {argument}=None, or change the width with {plain} first. "
            f"Received: input shape {tuple(input_shape)}, {argument}={output_width}"
        )
    return width


# Keras's own `keras.RematScope` (3.15) is not enough for blocks with batch normalization and dropout: on JAX, assigned
# values leak out of `jax.checkpoint`. On TensorFlow and PyTorch, moving averages move twice a step, and the second pass
# does not know that it is training. It also wraps every sublayer, and a saved model forgets it. Here the function that
# runs twice is pure: variables are arguments, and their new values are results that are assigned once.
_RUNNING: contextvars.ContextVar[tuple[int, ...]] = contextvars.ContextVar("rematerializing", default=())


def runs(layer: keras.layers.Layer) -> bool:
    """Whether `rematerialized` is calling the layer."""
    return id(layer) in _RUNNING.get()


def rematerialized(layer: keras.layers.Layer, *inputs: Any) -> Any:
    """Call a built layer in training with gradient checkpointing."""
    learned, others = layer.trainable_variables, layer.non_trainable_variables
    # Copies of now: the second run reads them when the variables have moved on, and seeds must be the first's.
    state = [ops.copy(v.value) for v in others]
    kept = [x for x in keras.tree.flatten(list(inputs)) if x is not None]
    # On JAX what leaves the function is a result of it. Elsewhere it is put aside in the first of the two runs: a
    # result would go into the gradient, and seeds have none.
    returned = keras.backend.backend() == "jax"
    aside: list[Any] = []

    def function(*tensors: Any) -> Any:
        mapping = [*zip(learned, tensors[len(kept) :], strict=True), *zip(others, state, strict=True)]
        with keras.StatelessScope(state_mapping=mapping, collect_losses=True) as scope:
            y = _straight(layer, _packed(inputs, tensors))
        _disown(layer, scope.losses)
        became = [scope.get_current_value(v) for v in others]
        if returned:
            return y, scope.losses, became
        if not aside:
            aside.append(became)
        return y, scope.losses

    result = keras.remat(function)(*kept, *[ops.convert_to_tensor(v.value) for v in learned])
    y, losses, became = result if returned else (*result, aside[0])
    layer.add_loss(losses)
    for variable, old, new in zip(others, state, became, strict=True):
        if new is not None and new is not old:
            variable.assign(ops.stop_gradient(new))
    return y


def _packed(inputs: Sequence[Any], tensors: Sequence[Any]) -> Any:
    """Return the inputs, with their tensors replaced."""
    rest = iter(tensors)
    return keras.tree.map_structure(lambda x: None if x is None else next(rest), list(inputs), none_is_leaf=True)


def _straight(layer: Any, inputs: Sequence[Any]) -> Any:
    token = _RUNNING.set((*_RUNNING.get(), id(layer)))
    # The call around this one regularizes the output, and the second run, outside of any, would clear its losses.
    regularizer, losses = layer.activity_regularizer, layer._losses[:]
    layer.activity_regularizer = None
    try:
        return layer(*inputs, training=True)
    finally:
        layer.activity_regularizer = regularizer
        layer._losses[:] = losses
        _RUNNING.reset(token)


def _disown(layer: Any, losses: Sequence[Any]) -> None:
    """Remove losses that are results now from the layers: Keras knows them by id, which may be used again."""
    ids = {id(loss) for loss in losses}
    for inner in layer._flatten_layers():
        inner._loss_ids -= ids
