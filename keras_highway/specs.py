"""Specs of the variants: frozen dataclasses of numbers and words.

No Keras here: a spec can be read, compared, replaced and written as JSON
without building anything. `variants.py` holds the rows, `models/` the builders.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from msgspec import Meta

from keras_highway._support.schema import coerced, refuse
from keras_highway.gating import carry_gate_bias, check_gates, gate_bias_for_depth, get_gating
from keras_highway.tasks import IMAGES, LANGUAGE, Task

Size = Annotated[int, Meta(ge=1, le=10**6)]
Sizes = Annotated[tuple[Size, ...], Meta(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class NetSpec:
    """Fields of every network."""

    name: str  # the variant's name, stable
    gating: str = "coupled"  # row of `kh.GATINGS`
    # initial bias of the transform gates, or `"by_depth"`: what `gate_bias_for_depth` gives for the net's depth in
    # layers
    gate_bias: float | str = -2.0
    # how gates are made, see `kh.layers.GatedBlock`. `"tied"`: shared by all blocks of a stage but its first, which
    # may be a transition; in fully connected nets by all layers; without batch normalization, whose moving averages
    # would fit no block
    gate: str = "same"
    gate_rank: Size | None = None  # rank of low-rank gates
    skip_dtype: str = "float32"  # dtype of the skip stream and the mix
    stochastic_depth: float = 0.0  # rate of the last block; it grows linearly from 0 at the first
    # whether in training a block keeps only its input for the gradient and computes its inside again, see
    # `kh.layers.GatedBlock`. It changes no weight and no result
    remat: bool = False
    input_shape: tuple[int, ...] = (32, 32, 3)  # default input, (height, width, channels)
    min_size: int = 32  # smallest height and width
    classes: Size = 10  # default number of classes
    source: str = ""  # where the architecture is published, and what was chosen here
    recipe: str = ""  # name of the recipe that trains it, or `""`
    published_parameters: int | None = None  # the exact count of the published architecture where that is known in full
    printed_parameters: str = ""  # the count as the source prints it, `""` where it prints none

    task: ClassVar[Task] = IMAGES
    can_tie_gates: ClassVar[bool] = False

    @property
    def layers_deep(self) -> int | None:
        """Convolutions and dense layers on the way through the transforms, with the classifier, as the papers count.

        `None` where they do not.
        """
        return None

    def check_start(self) -> None:
        """Raise a `ValueError` where random weights could not be trained; trained ones may be loaded."""


@dataclass(frozen=True, kw_only=True)
class ConvNetSpec(NetSpec):
    """Stem, stages of residual-style blocks, head: the ImageNet and the CIFAR 110-layer nets."""

    block: Literal["basic", "bottleneck"]
    blocks: Sizes  # blocks of each stage
    # width of each stage: filters of a basic block, inner channels of a bottleneck (whose output has `4 * width`)
    widths: Sizes
    stem: Literal["imagenet", "cifar"] = "imagenet"  # `"imagenet"` (7x7/2 and 3x3/2 max-pool) or `"cifar"` (3x3)
    stem_width: Size = 64  # channels of the stem
    neck_width: Size | None = None  # channels of a 3x3 convolution after the last stage, or `None`
    post_activation: bool = False  # ReLU after the mix
    final_relu: bool = False  # ReLU at the end of the transform
    zero_init: bool = False  # the transform starts at zero ("zeroBN")
    batch_norm: bool = True  # whether convolutions are followed by batch normalization
    projection: Literal["A", "B"] = "B"
    kernel_init: Literal["fan_in", "fan_out"] = "fan_out"  # of He-normal initialization
    # whether the blocks of a stage that do not change the shape share the kernels of their transforms [Liao and
    # Poggio 2016]; batch normalization stays each block's own
    shared_transforms: bool = False
    head_dropout: float = 0.0  # rate before the classifier
    # residual variant whose trained weights are converted to this one (see `highway_from_resnet`), or `""`
    baseline: str = ""

    can_tie_gates: ClassVar[bool] = True

    @property
    def layers_deep(self) -> int:
        """Stem, blocks, neck and classifier."""
        return 2 + (self.neck_width is not None) + sum(self.blocks) * (2 if self.block == "basic" else 3)

    def check_start(self) -> None:
        """As every spec's."""
        refuse(
            (
                self.zero_init and (self.final_relu or not get_gating(self.gating).has_skip),
                "`zero_init` starts the transform at 0, where it stays with a final ReLU or without a skip: set "
                f"zero_init=False. Received: zero_init=True, gating={self.gating!r}, final_relu={self.final_relu}",
            )
        )


@dataclass(frozen=True)
class ConvStage:
    """A stage of a convolutional highway net: dropout, a plain convolution, highway layers, a pool."""

    highways: tuple[int, ...]  # kernel size of each highway layer
    filters: int | None = None  # channels of the plain convolution, `None` without it
    kernel: int = 3  # its kernel size
    padding: str = "same"  # its padding, `"same"` or `"valid"`
    dropout: float = 0.0  # rate before the stage
    # max-pool (size, stride) after the stage, padded at the end as Caffe's ceil mode does, or `None`
    pool: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class ConvStackSpec(NetSpec):
    """The convolutional highway nets of [TVDN]: no normalization, stages of `HighwayConv2D`."""

    stages: tuple[ConvStage, ...]  # the stages
    neck_width: Size | None = None  # channels of a 1x1 convolution with ReLU after the last stage, or `None`
    head_pool: Literal["flatten", "avg", "max"] = "avg"  # before the classifier, global
    # units of a fully connected layer with ReLU between that and the classifier, or `None`
    hidden_units: Size | None = None
    head_dropout: float = 0.0  # rate before the classifier
    dropout_scale: float = 1.0  # factor in (0, 1] on all dropout rates: recipes of fewer epochs need less
    # standard deviation of the first convolution's normal initialization; `None` for He's (by fan-in), like the
    # others
    stem_init_std: float | None = None
    head_init_std: float | None = None  # the same for the classifier

    @property
    def layers_deep(self) -> int:
        """Convolutions, plain and highway, and dense layers with the classifier."""
        convolutions = sum((stage.filters is not None) + len(stage.highways) for stage in self.stages)
        return convolutions + 1 + (self.neck_width is not None) + (self.hidden_units is not None)


@dataclass(frozen=True, kw_only=True)
class DenseStackSpec(NetSpec):
    """Fully connected nets of [TVDN, 3.1]: a plain layer, `depth - 1` highway layers, a classifier."""

    depth: Size  # layers without the classifier
    units: Size = 50  # width of all of them
    activation: str = "relu"  # of all of them
    head_dropout: float = 0.0  # rate before the classifier
    # whether the highway layers are one `HighwayDenseStack`, for nets too deep for a graph of layers; their weights
    # are stacked
    scanned: bool = False
    input_shape: tuple[int, ...] = (28, 28, 1)
    min_size: int = 1

    can_tie_gates: ClassVar[bool] = True

    @property
    def layers_deep(self) -> int:
        """Without the classifier, as the paper counts these nets."""
        return self.depth


@dataclass(frozen=True, kw_only=True)
class CharLMSpec(NetSpec):
    """The character-aware language model of [UIE, 5.2], after Kim et al. 2015.

    `input_shape` is one number, the characters of a spelled word, and
    `classes` the number of words.
    """

    kernels: Sizes  # widths of the convolutions over characters
    filters: Sizes  # number of filters of each
    characters: Size = 51  # number of characters with their marks
    char_units: Size = 15  # size of a character's embedding
    highways: Annotated[int, Meta(ge=0)] = 2  # number of highway layers on a word's vector; may be 0
    units: Size = 650  # size of an LSTM's state
    lstms: Size = 2  # number of LSTMs
    dropout: Annotated[float, Meta(ge=0, lt=1)] = 0.5  # rate between the LSTMs and before the softmax
    streams: Size = 20  # parallel streams of text, the batch in training
    # all parameters start uniformly up to so far from zero (the biases of gates: from the gate bias)
    init_range: Annotated[float, Meta(gt=0, le=1e30)] = 0.05
    hierarchical: bool = False  # whether the softmax is in two steps, for large vocabularies, see `HierarchicalSoftmax`
    input_shape: tuple[int, ...] = (21,)
    min_size: int = 1
    classes: Size = 10_000
    # test perplexity on the Penn Treebank as the source writes it, `""` where it does not
    published_perplexity: str = ""

    task: ClassVar[Task] = LANGUAGE


BY_DEPTH = "by_depth"
SpecT = TypeVar("SpecT", bound=NetSpec)


# Words of timm and Hugging Face, and of this package.
_ELSEWHERE = {
    "pretrained": 'weights="imagenet" or a name from kh.list_weights()',
    **dict.fromkeys(("num_classes", "num_labels", "class_names"), "classes=, a number or a list of names"),
    "in_chans": "input_shape=(height, width, channels)",
    "img_size": "input_shape=(height, width, channels)",
    "global_pool": "pooling=",
    "drop_rate": "head_dropout=",
    "drop_path_rate": "stochastic_depth=",
}


def override(spec: SpecT, **changes: Any) -> SpecT:
    """Return the spec with some fields changed, checked."""
    strange = next((name for name in _ELSEWHERE if name in changes), "")
    stages = changes.get("stages")
    known = {field.name for field in dataclasses.fields(ConvStage)}
    parts = [stage for stage in stages if isinstance(stage, dict)] if isinstance(stages, list | tuple) else []
    refuse(
        (
            strange,
            f"Unknown field of variant {spec.name!r}: pass {_ELSEWHERE.get(strange)}. "
            f"Received: {strange}={changes.get(strange)!r}",
        ),
        (
            any(stage.keys() - known for stage in parts),  # msgspec ignores unknown names
            f"Unknown field of a stage. Fields are {', '.join(sorted(known))}. Received: stages={stages!r}",
        ),
    )
    new = coerced(spec, f"variant {spec.name!r}", **changes)
    check(new)
    return new


def check(spec: NetSpec) -> None:
    """Raise a ValueError where a field of a spec has an impossible value."""
    by_depth = spec.gate_bias == BY_DEPTH and spec.layers_deep is not None
    refuse(
        (
            not by_depth and (isinstance(spec.gate_bias, str) or not math.isfinite(spec.gate_bias)),
            f"`gate_bias` must be a finite number or {BY_DEPTH!r} (not in language models). "
            f"Received: gate_bias={spec.gate_bias!r}",
        ),
        (
            spec.gate == "tied" and not spec.can_tie_gates,
            "gate='tied' is for nets of residual-style blocks and for fully connected nets. "
            f"Received: gate='tied' for {spec.name!r}",
        ),
    )
    check_gates(spec.gating, spec.gate, spec.gate_rank, spec.stochastic_depth)
    blocks, widths = getattr(spec, "blocks", ()), getattr(spec, "widths", ())
    text = f"`blocks` and `widths` need one number per stage. Received: blocks={blocks}, widths={widths}"
    refuse((len(blocks) != len(widths), text))


def stochastic_depth_rates(spec: NetSpec, blocks: int) -> list[float]:
    """Return the rate of each of a net's blocks: it grows linearly from 0 to `spec.stochastic_depth` at the last."""
    return [spec.stochastic_depth * (i / max(blocks - 1, 1)) for i in range(blocks)]


def initial_gate_bias(spec: NetSpec) -> float:
    """Return the initial bias of the transform gates as a float; `"by_depth"` follows [TVDN, 2.2]."""
    if spec.gate_bias == BY_DEPTH and spec.layers_deep is not None:
        return gate_bias_for_depth(spec.layers_deep)
    return float(spec.gate_bias)


def block_options(spec: NetSpec) -> dict[str, Any]:
    """Return the fields of a spec that are arguments of all of its blocks."""
    fields = ("gating", "gate", "gate_rank", "skip_dtype", "remat")
    return {"gate_bias": initial_gate_bias(spec), **{name: getattr(spec, name) for name in fields}}


def tied_gate(spec: NetSpec, stage: int, make: Callable[[str, float], Any]) -> Callable[[Any], Any]:
    """Make the gate layers that the blocks of a stage share: `stage<n>_gate`, and `stage<n>_carry_gate` for `"full"`.

    Returns a function from the input of a block to its `gate`: logits, or a pair of them.
    """
    learned, bias = get_gating(spec.gating).learned_gates, initial_gate_bias(spec)
    biases = {"t": bias, "c": carry_gate_bias(bias)}
    if len(learned) == 1:
        return make(f"stage{stage}_gate", biases[learned[0]])
    transform, carry = make(f"stage{stage}_gate", biases["t"]), make(f"stage{stage}_carry_gate", biases["c"])
    return lambda x: (transform(x), carry(x))


def to_dict(spec: NetSpec) -> dict[str, Any]:
    """Return a spec as plain JSON values, with its class under `"kind"`."""
    return {"kind": type(spec).__name__, **dataclasses.asdict(spec)}
