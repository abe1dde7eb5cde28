"""From a ResNet to a highway network that computes the same function: a start for its gates, not a published net.

ReLU is positively homogeneous, `relu(a·z) = a·relu(z)` for `a > 0`, and every
branch begins with a convolution; so a factor on the skip stream can be carried
from block to block exactly. With gates that start at the constants `t` and `c`
(coupled: `t = ε`, `c = 1 − ε`) and an input that arrives as `s·x`, the block

    y' = relu(t·H'(s·x) + c·s·x)          for  y = relu(H(x) + x)

gives `y' = s'·y`, `s' = c·s`, where H' is H with its first convolution divided
by `s` and its output (gamma and beta of the last batch normalization)
multiplied by `s'/t`. After the first convolution, H' is the same as H, so
this holds for batch statistics as for moving ones. A projection P' is P with
its convolution divided by `s` and its output by `c`; then `s' = 1`. So is the
classifier, or any other layer of convolutions, divided by the `s` it gets.
"""

import math
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_highway._support.keras_models import scale_losses_as
from keras_highway._support.schema import check_choice, checked_number, refuse
from keras_highway.analysis.trace import blocks, is_functional, walk
from keras_highway.gating import GATINGS, Gating, get_gating
from keras_highway.layers import Branch, GatedBlock
from keras_highway.layers.blocks import ConvBlock
from keras_highway.models.transfer import without_updates
from keras_highway.weights.info import info_of, note_info

GATES = ("channel", "same")
_SMALLEST = 1e-30  # of the stream's factor: float32 ends at 1e-38, and activations have to fit above it
_KEEP_FACTOR = (
    keras.layers.ZeroPadding2D,
    keras.layers.MaxPooling2D,
    keras.layers.AveragePooling2D,
    keras.layers.GlobalAveragePooling2D,
    keras.layers.GlobalMaxPooling2D,
    keras.layers.Flatten,
    keras.layers.Dropout,
)


def highway_from_resnet(
    model: keras.Model, gating: str = "coupled", epsilon: float = 0.1, gate: str = "channel", name: str | None = None
) -> keras.Model:
    """Turn a ResNet into a highway network that computes the same function.

    A converted net, not a published one: `highway50_from_resnet50` has the
    ResNet's weights and widths, and untrained gates. The weights of [BLOG]'s
    Highway50 need training on ImageNet.

    Every transform gate starts at `T = epsilon` and every learned carry gate
    at `C = 1 - epsilon` for every input; the scales of the branches compensate
    for it. Outputs are the ResNet's, with moving and with batch statistics.
    From there, gates can be trained, traced and trimmed.

    What to know before training:

    - `gate="same"`: the last batch normalization of a gate has gamma 0. In the
      first step only its gamma and beta get a gradient; the gate's
      convolutions, freshly initialized, get theirs as gamma leaves 0.
    - The stream inside a stage shrinks by `1 - epsilon` per block, to 0.025 in
      the longest stage of ResNet152. Convolutions that read it have kernels
      larger by as much, and a step of plain SGD moves those relatively less.
    - A lesion (`T = 0`) passes x on at the factor with which it came:
      `1 / (1 - epsilon)` times what the next block expects.
    - Frozen layers stay frozen, but gates are trainable: `kh.freeze(resnet)`
      before the conversion leaves gates and classifier to be trained. Copies
      of the result, cloned or loaded from a file, train their blocks in full.
    - Low-rank updates (`kh.enable_lora`) become part of the kernels, and all
      is trainable again.

    Args:
        model: A post-activation ResNet of `keras_highway` with its
            classifier: `kh.ResNet50(weights="imagenet")`, `resnet110`, ...
        gating: `"coupled"`, `"full"`, `"t_only"` or `"c_only"`. Defaults to
            `"coupled"`.
        epsilon: Float in (0, 1), where gates start. Defaults to `0.1`.
        gate: `"channel"` (one number per channel, independent of the data:
            15,104 parameters for ResNet50) or `"same"` (a gate branch as deep
            as the transform). Defaults to `"channel"`.
        name: Name of the result. Defaults to `"highway50_from_resnet50"` for a
            model named `"resnet50"`.

    Returns:
        A functional `keras.Model` with layers and weights of its own, the
        layer names and output shape of `model`; not compiled. It has
        the layers of `kh.create_model("resnet50", gating="coupled",
        gate="channel")`, which can load its weights.

    Raises:
        ValueError: If the model is not a chain of layers with residual
            post-activation blocks, has stochastic depth or lacks its
            classifier, or another argument is out of its range.

    Example:

    >>> resnet = kh.ResNet50(weights="imagenet")
    >>> highway = kh.highway_from_resnet(resnet, epsilon=0.1)
    """
    expected = "a number above 0 and below 1, where the transform gates start, such as 0.1"
    epsilon = checked_number(epsilon, "epsilon", expected, 0.0, 1.0)
    check_choice("gating", gating, [name for name, row in GATINGS.items() if row.learned_gates])
    check_choice("gate", gate, GATES)
    _check_model(model)
    model = without_updates(model)
    chain = _Chain(model.inputs[0], get_gating(gating), epsilon, gate)
    converted = walk(model, chain.follow)
    chain.check_end()
    start = model.name.replace("resnet", "highway", 1) if model.name.startswith("resnet") else "highway"
    highway = keras.Model(converted.inputs[0], converted.outputs[0], name=name or f"{start}_from_{model.name}")
    scale_losses_as(highway, model)
    if info := info_of(model):
        note_info(highway, info.derived(overrides={**info.overrides, "gating": gating, "gate": gate}))
    return highway


class _Chain:
    """Follows a model layer by layer: builds the converted layers and knows the stream's factor `s`."""

    def __init__(self, inputs: keras.KerasTensor, gating: Gating, epsilon: float, gate: str):
        self.s = 1.0
        self.output = inputs
        self.gating, self.gate = gating.name, gate
        self.t = epsilon if gating.t == "learned" else 1.0
        self.c = 1.0 if gating.c == "one" else 1.0 - epsilon
        self.gate_bias = math.log(epsilon / (1.0 - epsilon))
        self.seen: set[str] = set()

    def follow(self, layer: keras.Operation, *args: Any, **kwargs: Any) -> Any:
        """Return the output of the layer that stands for `layer`."""
        self._check_place(layer, args)
        if isinstance(layer, ConvBlock):
            changes = {"gating": self.gating, "gate": self.gate, "gate_bias": self.gate_bias, "trainable": True}
        else:
            changes = {}
        new = type(layer).from_config({**layer.get_config(), **changes})
        self.output = new(*args, **kwargs)
        if isinstance(layer, ConvBlock):
            self._convert_block(layer, new)
        elif isinstance(layer, Branch):
            _copy_branch(layer, new)
            self._take_factor(new.conv1)
        else:
            new.set_weights(layer.get_weights())
            if isinstance(layer, keras.layers.Dense):
                self._take_factor(new)
        return self.output

    def check_end(self) -> None:
        """Refuses a net whose output would be scaled."""
        if self.s != 1.0:
            raise ValueError(
                f"Without its classifier, the converted net would give the ResNet's features times {self.s:.3g}. "
                "Convert the net with its top (include_top=True) and take kh.features of the result. "
                f"Received: a model whose last layer gives {tuple(self.output.shape)}"
            )

    def _convert_block(self, old: ConvBlock, new: ConvBlock) -> None:
        """See the equations at the top of this file."""
        s = self.s
        _copy_branch(old.transform, new.transform)
        if isinstance(old.projection, Branch):
            _copy_branch(old.projection, new.projection)
            _multiply(1.0 / s, new.projection.conv1.kernel)
            _multiply(1.0 / self.c, *_output_parameters(new.projection))
            self.s = 1.0
        else:  # x itself, or padded with channels of zeros
            self.s = self.c * s
        _multiply(1.0 / s, new.transform.conv1.kernel)
        _multiply(self.s / self.t, *_output_parameters(new.transform))
        for gate in (new.transform_gate, new.carry_gate):
            if isinstance(gate, Branch):
                _multiply(0.0, _output_parameters(gate)[0])
        if self.s < _SMALLEST:
            raise ValueError(
                f"With epsilon={1.0 - self.c:g} the skip stream would shrink to {self.s:.1g} of its size at "
                f"{old.name!r}, which float32 cannot carry. Pass a smaller epsilon, such as 0.1."
            )

    def _take_factor(self, layer: keras.layers.Layer) -> None:
        _multiply(1.0 / self.s, layer.kernel)
        self.s = 1.0

    def _check_place(self, layer: keras.Operation, args: tuple[Any, ...]) -> None:
        known = isinstance(layer, (ConvBlock, Branch, keras.layers.Dense, *_KEEP_FACTOR))
        refuse(
            (
                len(args) != 1 or args[0] is not self.output or layer.name in self.seen,
                "highway_from_resnet follows a chain of layers, each on the output of the one before and used once, "
                "and carries a factor along it. Build the ResNet with kh.ResNet50 or kh.create_model. "
                f"Received: a model in which layer {layer.name!r} stands elsewhere",
            ),
            (
                not known and (self.s != 1.0 or not isinstance(layer, keras.layers.Layer)),
                "highway_from_resnet can carry a factor through residual blocks, convolution branches, pooling, "
                "dropout and Dense layers only: build other layers on its result. "
                f"Received: {layer.name!r} of type {type(layer).__name__}",
            ),
        )
        self.seen.add(layer.name)


def _copy_branch(old: Branch, new: Branch) -> None:
    """Copy weights, and what is frozen: batch normalization may be, on its own."""
    new.set_weights(old.get_weights())
    new.trainable = old.trainable
    for before, after in zip(_sublayers(old), _sublayers(new), strict=True):
        after.trainable = before.trainable


def _sublayers(branch: Branch) -> Iterator[keras.layers.Layer]:
    for i in range(1, branch.depth + 1):
        yield getattr(branch, f"conv{i}")
        if branch.batch_norm:
            yield getattr(branch, f"bn{i}")


def _output_parameters(branch: Branch) -> tuple[Any, Any]:
    """Return the two variables in which the branch's output is linear: scale and offset."""
    *_, last = _sublayers(branch)
    return (last.gamma, last.beta) if branch.batch_norm else (last.kernel, last.bias)


def _multiply(factor: float, *variables: keras.Variable) -> None:
    for variable in variables:
        variable.assign(factor * np.asarray(ops.convert_to_numpy(variable), "float64"))


def _check_model(model: keras.Model) -> None:
    """Refuses a model that is not a post-activation ResNet of this package, before anything is built."""
    advice = "Pass a ResNet such as kh.ResNet50(weights='imagenet') or kh.create_model('resnet110')."
    if not is_functional(model) or len(model.inputs) != 1 or len(model.outputs) != 1:
        reason = f"highway_from_resnet converts a functional model of one input and one output. {advice}"
    elif not any(isinstance(layer, GatedBlock) for layer in model.layers):
        reason = f"The model has no residual blocks of keras_highway (blocks of a nested model do not count). {advice}"
    else:
        parts = model._flatten_layers()  # pyright: ignore[reportPrivateUsage] (Keras has no public way to them)
        reasons = [_refusal(block, model) for block in blocks(model).values()]
        if any(getattr(layer, "quantization_mode", None) for layer in parts):
            reasons = ["highway_from_resnet scales kernels of floats: convert the model first and quantize then."]
        reason = next((reason for reason in reasons if reason), None)
    if reason:
        raise ValueError(f"{reason} Received: model of type {type(model).__name__}, {getattr(model, 'name', model)!r}")


def _refusal(block: GatedBlock, model: keras.Model) -> str | None:
    """Why a block cannot be converted; None if it can."""
    if block.gating != "residual":
        return f"Only residual blocks are converted; this one has gating={block.gating!r} and needs no conversion."
    if not isinstance(block, ConvBlock):
        return f"Only BasicBlocks and BottleneckBlocks are converted; this one is a {type(block).__name__}."
    if not block.post_activation:
        return (
            "Only post-activation ResNets are converted, with a ReLU after each sum; this block has none. "
            "Use one with post_activation=True, such as kh.ResNet50."
        )
    if block.stochastic_depth:
        return (
            "Stochastic depth skips blocks, and a converted block changes the scale of its output. Build the "
            "ResNet with stochastic_depth=0.0: the weights are the same."
        )
    if block.shared_transform:
        return (
            "A converted block has the scale of its position in its own kernels, and this one shares them with others. "
            "Build the ResNet with shared_transforms=False."
        )
    if not any(block is layer for layer in model.layers):
        return "The blocks of a nested model are not converted: convert that model by itself."
    return None
