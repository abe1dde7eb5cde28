"""Replace blocks of a model: `rewire`, and many replacements in one pass."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_highway._support.keras_models import Shape
from keras_highway.analysis.trace import block_name, blocks, blocks_in, check_names, holds_blocks, walk, walk_nested
from keras_highway.layers import ChannelGate, GatedBlock, SharedKernels


@dataclass(frozen=True)
class Lesion:
    """Replacement of a block by itself with a closed transform gate, `t = 0`.

    Attributes:
        block: Name of the block.
    """

    block: str


Replacement = Lesion | str | Callable[..., Any] | None
Plan = Mapping[str, Replacement] | Iterable[Lesion] | Lesion


def lesion(block: str | GatedBlock) -> Lesion:
    """Return the replacement of a block by itself with `t = 0` [TVDN, 4].

    The skip remains: `y = x` where the carry gate is 1 or coupled, `y = x·c`
    where it is learned, and the post-activation where the block has one. A
    plain block, which has no skip, passes its input on. The weights of the
    block stay in the model. (`{"stage1_block2": None}` removes the block.)

    ```python
    rewire(model, lesion("stage1_block2"))
    rewire(model, [lesion("stage1_block2"), lesion("stage3_block1")])
    ```

    Args:
        block: Name of a block, or the block.
    """
    return Lesion(block_name(block))


def rewire(model: keras.Model, plan: Plan) -> keras.Model:
    """Return the model with some blocks replaced.

    ```python
    rewire(model, {"stage2_block2": "stage2_block3", "stage2_block3": "stage2_block2"})   # swapped
    rewire(model, {"stage2_block2": lesion("stage2_block2"), "stage2_block3": None})
    ```

    The result is an ordinary functional model with the same inputs and the
    same layers, so training one trains both. It is not compiled.
    `rewire(model, {})` computes exactly what `model` does.

    Args:
        model: A functional `keras.Model` with gated blocks.
        plan: A dict from the name of a block (or the block) to its
            replacement. This is a `lesion(block)`, the name of another block
            (both positions then share its weights), a layer or a function
            from the input of the block to a Keras tensor of its output shape,
            or `None` to remove the block. `plan` may also be a lesion or an
            iterable of lesions, each for its own block.

    Returns:
        A functional `keras.Model` of the same name.

    Raises:
        ValueError: If the model is not functional or has no blocks, a block
            is unknown or a lesioned transition, or a replacement does not fit.
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
    whole = {id(block) for block in blocks_in(rewired)}
    for layer in rewired._flatten_layers():  # pyright: ignore[reportPrivateUsage] (Keras has no public way to them)
        if isinstance(layer, LesionedBlock):
            layer.stands_elsewhere = id(layer.block) in whole
    return rewired


def check_lesionable(block: GatedBlock) -> None:
    """Raise a ValueError if a block is a transition."""
    if block.is_transition:
        raise ValueError(
            "`block` must not be a transition: it changes the shape, so the network needs it. "
            f"Received: block={block.name!r}"
        )


def removable(known: Mapping[str, GatedBlock]) -> list[str]:
    """Return the names of the blocks that are not transitions, at least one."""
    names = [name for name, block in known.items() if not block.is_transition]
    if not names:
        raise ValueError(f"`model` must have a block that is not a transition. Received: {', '.join(known)}")
    return names


@keras.saving.register_keras_serializable(package="keras_highway")
class LesionedBlock(keras.layers.Layer):
    """A block with `t = 0` that shares its layers; see `lesion`."""

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
        """Return the second inputs of the block."""
        return self.block.second_inputs

    def compute_output_spec(self, x: Any, **kwargs: Any) -> Any:
        return keras.KerasTensor(self.block.compute_output_shape(x.shape), dtype=self.block.skip_dtype)

    def get_config(self) -> dict[str, Any]:
        if self.stands_elsewhere:  # the file would have its weights once, a loaded model two blocks
            raise ValueError(
                f"A model with {self.block.name!r} and a lesion of it cannot be saved or cloned: "
                "save the original model and rewire it again."
            )
        return {**super().get_config(), "block": keras.saving.serialize_keras_object(self.block)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**{**config, "block": keras.saving.deserialize_keras_object(config["block"])})


def _entries(plan: Plan) -> dict[str, Replacement]:
    if isinstance(plan, Mapping):
        return {block_name(block): what for block, what in plan.items()}
    items = list(plan) if isinstance(plan, Iterable) else [plan]
    if not all(isinstance(item, Lesion) for item in items):
        raise ValueError(
            "`plan` must be a dict from block names to replacements, a lesion, or a list of lesions: "
            f"[lesion('stage1_block2')]. Received: plan={plan!r}"
        )
    return {item.block: item for item in items}


def _resolve(
    name: str, what: Replacement, known: Mapping[str, GatedBlock], cache: "dict[str, LesionedBlock]"
) -> Callable[..., Any]:
    """Return what to call instead of a block: a layer or a function."""
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
        "A replacement must be a lesion, the name of another block, a layer, a function or None. "
        f"Received: {name!r}: {what!r}"
    )


def _call(replacement: Any, block: GatedBlock, x: Any, **shared: Any) -> Any:
    """Call a replacement where `block` stood; another block also gets the shared inputs (`gate`, `kernels`)."""
    expected = block.compute_output_shape(x.shape)
    takes = getattr(replacement, "second_inputs", ())
    cause = None
    try:
        y = replacement(x, **{name: value for name, value in shared.items() if name in takes})
        if tuple(y.shape) == tuple(expected):
            return y
        received = f"shape {tuple(y.shape)}"
    except (TypeError, ValueError) as error:
        cause, received = error, "an error, see above"
    raise _misfit(getattr(replacement, "name", replacement), block, x, received) from cause


def _misfit(name: Any, block: GatedBlock, x: Any, received: str) -> ValueError:
    return ValueError(
        f"{name!r} cannot replace block {block.name!r}, which takes shape {tuple(x.shape)} and gives "
        f"shape {tuple(block.compute_output_shape(x.shape))}. Received from it: {received}"
    )


Wiring = Mapping[str, Lesion | str | None]


class BatchedRewiring:
    """Compute the outputs of `rewire(model, plan)` for many plans in one pass: `rewiring(x)`.

    Plans share the computation up to the first block that they treat
    differently. From there on, the samples of all plans run as one larger batch.
    A lesion curve over `n` blocks costs about `n²/2` block evaluations instead of
    `n²`, in `n` calls instead of `n²`.
    """

    def __init__(self, model: keras.Model, plans: Sequence[Wiring], switches: Sequence[str] = ()):
        self._known = blocks(model)
        if len(model.inputs) != 1:
            raise ValueError(
                "`model` must have one input: evaluate rewire(model, plan) for each plan instead. "
                f"Received: {model.name!r} with {len(model.inputs)} inputs"
            )
        self._plans = list(plans)
        check_names(switches, self._known)
        for name in switches:
            check_lesionable(self._known[name])
        self._switches = {name: _Switch(name=f"{name}_switch", dtype="float32") for name in switches}
        for plan in self._plans:
            check_names(plan, self._known)
            check_names([what for what in plan.values() if isinstance(what, str)], self._known)
        self._lesions: dict[str, LesionedBlock] = {}
        self._group = [0] * len(self._plans)  # which copy of the batch each plan uses
        self._copies = 1
        self._forks = 0
        self._made = {id(tensor): 0 for tensor in model.inputs}  # tensor -> after how many forks it was made
        self._tensors = []  # keeps them alive, so that no id is used twice
        graph = walk(model, self._visit)
        (tensor,) = keras.tree.flatten(graph.input)
        self._model = keras.Model(tensor, graph.output, name=f"{model.name}_rewiring")
        if keras.backend.backend() == "tensorflow":
            self._model.jit_compile = False  # XLA would compile for longer than most analyses run
        self._size = 0

    def __call__(self, x: Any) -> np.ndarray:
        """Return the outputs of every plan for a batch `(n, ...)`: a NumPy array `(plans, n, ...)`."""
        if isinstance(x, (tuple, list, dict)):
            tensors = keras.tree.flatten(x)
            if len(tensors) == 1 and np.ndim(tensors[0]):  # the structure of a model built with [input]
                (x,) = tensors
        x = np.asarray(ops.convert_to_numpy(x))
        n = len(x)
        self._size = max(self._size, n)
        if n < self._size:  # a batch of another size would be traced and compiled again
            x = np.concatenate([x, np.repeat(x[:1], self._size - n, 0)])
        output = np.asarray(self._model.predict_on_batch(x))
        return output.reshape(self._copies, len(x), *output.shape[1:])[self._group, :n]

    def switch_off(self, name: str) -> None:
        """Remove one of the `switches` from every plan: its input passes through."""
        self._switches[name].off.assign(True)

    def _visit(self, layer: keras.layers.Layer, *args: Any, **kwargs: Any) -> Any:
        if holds_blocks(layer):
            return walk_nested(layer, self._visit, args[0])
        before = self._check_one_path(layer, (args, kwargs))
        forks = self._forks
        y = self._step(layer, *args, **kwargs) if isinstance(layer, GatedBlock) else layer(*args, **kwargs)
        # A tensor made from a batch before a fork has its few copies, also if it is made after the fork.
        made = self._forks if self._forks > forks else before
        for tensor in keras.tree.flatten(y):
            # Weights, and gates that do not depend on the data, are the same before and after a fork.
            if made is not None and not isinstance(layer, (SharedKernels, ChannelGate)):
                self._made[id(tensor)] = made
            self._tensors.append(tensor)
        return y

    def _step(self, block: GatedBlock, x: Any, **shared: Any) -> Any:
        """Call a block, or its replacements, each for its copies of the batch."""
        wishes = [plan.get(block.name, block.name) for plan in self._plans]
        options: dict[Lesion | str | None, list[int]] = {}
        for wish, copy in zip(wishes, self._group, strict=True):
            copies = options.setdefault(wish, [])
            if copy not in copies:
                copies.append(copy)
        inputs = {"x": x, **shared}
        if list(options) == [block.name]:
            y = block(**inputs)
            switch = self._switches.get(block.name)
            return y if switch is None else switch(x, y)
        layers = [self._layer(wish, block, x, shared) for wish in options]
        fork = _Fork(
            block,
            layers,
            list(options.values()),
            self._copies,
            self._switches.get(block.name),
            name=f"{block.name}_fork{self._forks}",
        )
        new = {(wish, copy): i for i, (wish, copy) in enumerate((w, c) for w, cs in options.items() for c in cs)}
        self._group = [new[pair] for pair in zip(wishes, self._group, strict=True)]
        self._copies = len(new)
        self._forks += 1
        return fork(**inputs)

    def _layer(self, wish: Lesion | str | None, block: GatedBlock, x: Any, shared: Mapping[str, Any]):
        if isinstance(wish, Lesion):
            target = self._known[wish.block]
            layer = self._lesions.get(wish.block) or LesionedBlock(target, dtype=target.dtype_policy)
            self._lesions[wish.block] = layer
            if not layer.built:
                layer.build(x.shape)  # else Keras on JAX would first run the whole network step by step
        else:
            layer = target = None if wish is None else self._known[wish]
        expected = tuple(block.compute_output_shape(x.shape))
        actual = tuple(x.shape if target is None else target.compute_output_shape(x.shape))
        needs = set() if target is None else set(target.second_inputs)
        if actual != expected or not needs <= set(shared):
            missing = f", without its input {', '.join(sorted(needs - set(shared)))}" if needs - set(shared) else ""
            raise _misfit(target and target.name, block, x, f"shape {actual}{missing}")
        return layer

    def _check_one_path(self, layer: keras.layers.Layer, inputs: Any) -> int | None:
        """Return after how many forks the inputs of a layer were made; `None` if none comes from the batch."""
        fork_counts = {
            self._made[id(tensor)]
            for tensor in keras.tree.flatten(inputs)
            if keras.utils.is_keras_tensor(tensor) and id(tensor) in self._made
        }
        stale = isinstance(layer, GatedBlock) and bool(fork_counts - {self._forks})  # e.g. of another tower
        if len(fork_counts) > 1 or stale:
            raise ValueError(
                "`model` must be a chain of blocks, without a tensor or mask that bypasses blocks. Evaluate "
                f"rewire(model, plan) for each plan instead. Received: layer {layer.name!r}"
            )
        return next(iter(fork_counts), None)


class _Switch(keras.layers.Layer):
    """Return `y`, or `x` once it is off."""

    def __init__(self, **kwargs: Any):
        super().__init__(autocast=False, **kwargs)
        self.supports_masking = True
        self.off = self.add_weight((), "zeros", "bool", trainable=False, name="off")
        self.built = True  # else Keras on JAX would first run the whole network step by step

    def call(self, x: Any, y: Any) -> Any:
        return ops.where(ops.convert_to_tensor(self.off), ops.cast(x, y.dtype), y)


class _Fork(keras.layers.Layer):
    """Several layers instead of one block, each for some of the copies of the batch."""

    def __init__(
        self,
        block: GatedBlock,
        options: Sequence[keras.layers.Layer | None],
        copies: list[list[int]],
        total: int,
        switch: "_Switch | None" = None,
        **kwargs: Any,
    ):
        super().__init__(autocast=False, dtype=block.dtype_policy, **kwargs)
        self.supports_masking = block.supports_masking
        self.block = block
        self.used = [layer for layer in options if layer is not None]  # a list of layers, so that Keras tracks them
        self._taken_out = [layer is None for layer in options]
        self._chosen = copies
        self._total = total
        self.switch = switch

    # Keras names the shape of each input.
    def build(self, x_shape: Shape | None = None, gate_shape: Any = None, kernels_shape: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Do nothing: the blocks are built."""

    def call(self, x: Any, gate: Any = None, kernels: Sequence[Any] | None = None) -> Any:
        layers, outputs = iter(self.used), []
        for taken_out, chosen in zip(self._taken_out, self._chosen, strict=True):
            rows = self._rows(x, chosen)
            if taken_out:
                y = rows
            else:
                shared = {} if kernels is None else {"kernels": kernels}
                if gate is not None:
                    shared["gate"] = keras.tree.map_structure(lambda t, chosen=chosen: self._rows(t, chosen), gate)
                layer = next(layers)
                y = layer(rows, **{name: value for name, value in shared.items() if name in layer.second_inputs})
            if self.switch is not None:
                y = self.switch(rows, y)
            outputs.append(ops.cast(y, self.block.skip_dtype))
        return outputs[0] if len(outputs) == 1 else ops.concatenate(outputs, 0)

    def compute_output_spec(self, x: Any, gate: Any = None, **kwargs: Any) -> Any:
        return keras.KerasTensor(self.block.compute_output_shape(x.shape), dtype=self.block.skip_dtype)

    def _rows(self, tensor: Any, chosen: list[int]) -> Any:
        """Return those copies of the batch, one after the other."""
        if chosen == list(range(self._total)) or tensor.shape[0] == 1:  # gates that do not depend on the data
            return tensor
        shape = ops.shape(tensor)[1:]
        copies = ops.reshape(tensor, (self._total, -1, *shape))
        if len(chosen) == 1:
            return copies[chosen[0]]
        return ops.reshape(ops.take(copies, np.array(chosen, "int32"), axis=0), (-1, *shape))
