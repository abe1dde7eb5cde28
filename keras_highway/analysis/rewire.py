"""`rewire(model, plan)`: another wiring of the same layers. Nothing is patched, no weight is copied."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import keras

from keras_highway._support.keras_models import Shape
from keras_highway.analysis.graph import block_name, blocks, blocks_in, check_names, holds_blocks, walk
from keras_highway.layers import GatedBlock


@dataclass(frozen=True)
class Lesion:
    """Stands for a block whose transform gate is shut, `t = 0`.

    Attributes:
        block: The block's name.
    """

    block: str


Replacement = Lesion | str | Callable[..., Any] | None
Plan = Mapping[str, Replacement] | Iterable[Lesion] | Lesion


def lesion(block: str | GatedBlock) -> Lesion:
    """Returns the replacement of a block by itself with `t = 0` [TVDN, 4].

    What remains is the skip: `y = x` where the carry gate is 1 or coupled,
    `y = x·c` where it is learned, and the post-activation where the block has
    one. A plain block, which has no skip, lets its input through. The
    transform and its gate are not computed; their weights stay in the model.
    (`{"stage1_block2": None}` takes them out.)

    ```python
    rewire(model, lesion("stage1_block2"))
    rewire(model, [lesion("stage1_block2"), lesion("stage3_block1")])
    ```

    Args:
        block: A block's name, or the block.

    Raises:
        ValueError: If it is neither.
    """
    return Lesion(block_name(block))


def rewire(model: keras.Model, plan: Plan) -> keras.Model:
    """Returns the model with some blocks replaced.

    ```python
    rewire(model, {"stage2_block2": "stage2_block3", "stage2_block3": "stage2_block2"})   # swapped
    rewire(model, {"stage2_block2": lesion("stage2_block2"), "stage2_block3": None})
    ```

    The result is an ordinary functional model on the same inputs and the same
    layers, so training one trains both. It is not compiled. `rewire(model,
    {})` computes exactly what `model` does.

    Args:
        model: A functional `keras.Model` with gated blocks.
        plan: A dict from a block's name (or the block) to its replacement: a
            `lesion(block)`; the name of another block of the model (the two
            positions then share one set of weights); a layer, or any function
            from the block's input to a Keras tensor of its output's shape; or
            `None`: the input passes as it is. Or one lesion, or an iterable of
            them, each of which replaces its own block.

    Returns:
        A functional `keras.Model` of the same name.

    Raises:
        ValueError: If the model is not functional or has no blocks, for an
            unknown block, the lesion of a transition, or a replacement that
            does not fit.
    """
    known = blocks(model)
    entries = _entries(plan)
    check_names(entries, known)
    cache: dict[str, LesionedBlock] = {}
    replacements = {name: _resolve(name, what, known, cache) for name, what in entries.items()}

    def swap(layer: keras.layers.Layer) -> Any:
        return walk(layer, visit, swap) if holds_blocks(layer, replacements) else layer

    def visit(layer: keras.layers.Layer, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(layer, GatedBlock) or layer.name not in replacements:
            return layer(*args, **kwargs)
        return _call(replacements[layer.name], layer, *args, **kwargs)

    rewired = walk(model, visit, swap)
    _note_twins(rewired)
    return rewired


def _note_twins(model: keras.Model) -> None:
    """Notes of each lesioned block whether the block itself is in the model, too."""
    layers = list(model._flatten_layers())  # pyright: ignore[reportPrivateUsage] (Keras has no public way to them)
    whole = {id(block) for block in blocks_in(model)}
    for layer in layers:
        if isinstance(layer, LesionedBlock):
            layer.stands_elsewhere = id(layer.block) in whole


def check_lesionable(block: GatedBlock) -> None:
    """Raises a ValueError, with the reason, if a block is a transition."""
    if block.is_transition:
        raise ValueError(
            f"{block.name!r} is a transition: it changes the shape, so its x is a projection and not the input, "
            "and a lesion (t = 0) would measure the projection. Lesion the blocks inside a stage. "
            f"Received: block={block.name!r}"
        )


@keras.saving.register_keras_serializable(package="keras_highway")
class LesionedBlock(keras.layers.Layer):
    """A block with `t = 0`; see `lesion`.

    Input and output: as the block's.

    Args:
        block: The `GatedBlock`, whose layers it shares.

    Attributes:
        stands_elsewhere: Bool, whether the block is in the model, too.

    Raises:
        ValueError: If the block is a transition.
    """

    stands_elsewhere = False

    def __init__(self, block: GatedBlock, **kwargs: Any):
        super().__init__(autocast=False, **kwargs)
        check_lesionable(block)
        self.supports_masking = block.supports_masking
        self.block = block

    def build(self, input_shape: Shape) -> None:
        if not self.block.built:
            self.block.build(input_shape)

    def call(self, x: Any, gate: Any = None, kernels: Sequence[Any] | None = None) -> Any:
        return self.block.lesioned(x, gate)

    @property
    def second_inputs(self) -> tuple[str, ...]:
        """As the block's."""
        return self.block.second_inputs

    def compute_output_spec(self, x: Any, **kwargs: Any) -> Any:
        return keras.KerasTensor(self.block.compute_output_shape(x.shape), dtype=self.block.skip_dtype)

    def get_config(self) -> dict[str, Any]:
        if self.stands_elsewhere:  # the file would have its weights once, a loaded model two blocks
            raise ValueError(
                f"A model that has {self.block.name!r} and its lesion in another block's place cannot be saved or "
                "cloned: save the model that it was made of, and rewire that again."
            )
        return {**super().get_config(), "block": keras.saving.serialize_keras_object(self.block)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**{**config, "block": keras.saving.deserialize_keras_object(config["block"])})


def _entries(plan: Plan) -> dict[str, Replacement]:
    if isinstance(plan, Mapping):
        return {block_name(block): what for block, what in plan.items()}
    items = [plan] if isinstance(plan, Lesion) else plan
    if isinstance(items, str) or not isinstance(items, Iterable):
        items = [items]
    entries = {}
    for item in items:
        if not isinstance(item, Lesion):
            raise ValueError(
                "`plan` must be a dict from block names to replacements, a lesion, or a list of lesions "
                f"such as [lesion('stage1_block2')]. Received: {item!r}"
            )
        entries[item.block] = item
    return entries


def _resolve(
    name: str, what: Replacement, known: Mapping[str, GatedBlock], cache: "dict[str, LesionedBlock]"
) -> Callable[..., Any]:
    """What to call instead of a block: a layer or a function."""
    if what is None:
        return lambda x: x
    if isinstance(what, Lesion):
        check_names([what.block], known)
        if what.block not in cache:
            block = known[what.block]
            cache[what.block] = LesionedBlock(block, name=f"{block.name}_lesion", dtype=block.dtype_policy)
        return cache[what.block]
    if isinstance(what, str):
        check_names([what], known)
        return known[what]
    if callable(what):
        return what
    raise ValueError(
        "A block can be replaced by a lesion, the name of another block, a layer or function, or None. "
        f"Received: {name!r}: {what!r}"
    )


def _call(replacement: Any, block: GatedBlock, x: Any, **shared: Any) -> Any:
    """Calls a replacement where `block` stood; what blocks share there (`gate`, `kernels`) goes to another block."""
    expected = block.compute_output_shape(x.shape)
    takes = getattr(replacement, "second_inputs", ())
    try:
        y = replacement(x, **{name: value for name, value in shared.items() if name in takes})
    except (TypeError, ValueError) as error:
        raise ValueError(_misfit(replacement, block, x, expected, "an error, see above")) from error
    if tuple(y.shape) != tuple(expected):
        raise ValueError(_misfit(replacement, block, x, expected, f"shape {tuple(y.shape)}"))
    return y


def _misfit(replacement: Any, block: GatedBlock, x: Any, expected: Shape, received: Any) -> str:
    name = getattr(replacement, "name", replacement)
    return (
        f"{name!r} cannot replace block {block.name!r}, which takes shape {tuple(x.shape)} and gives "
        f"shape {tuple(expected)}. Received from it: {received}"
    )
