"""Many wirings of one network in one forward pass: what they share is computed once."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_highway._support.keras_models import Shape
from keras_highway.analysis.graph import blocks, check_names, holds_blocks, walk, walk_nested
from keras_highway.analysis.rewire import Lesion, LesionedBlock, check_lesionable
from keras_highway.layers import ChannelGate, GatedBlock, SharedKernels

Wiring = Mapping[str, Lesion | str | None]


class BatchedRewiring:
    """`rewiring(x)` gives the outputs of `rewire(model, plan)` for each of many plans.

    All plans start as one batch. Where they first disagree about a block, the
    batch forks: it grows by one copy of itself for each new history, and
    continues through the following blocks as one larger batch. So the prefix
    before a lesion is computed once for all lesions behind it, and a curve
    over `n` blocks costs about `n²/2` blocks instead of `n²`, in `n` steps
    instead of `n²`.

    Args:
        model: A functional `keras.Model` with gated blocks, with one input and
            one output, in which no tensor (nor mask) bypasses a block except
            through the block's own skip.
        plans: The wirings: dicts from a block's name to a `Lesion`, the name
            of another block, or `None` (taken out).
        switches: Names of blocks that `switch_off` can take out of every plan
            later, without compiling anew.

    Raises:
        ValueError: If the model has no blocks, several inputs, or a tensor
            bypasses its blocks, for an unknown block, the lesion of a
            transition, or a replacement of another shape than its block.
    """

    def __init__(self, model: keras.Model, plans: Sequence[Wiring], switches: Sequence[str] = ()):
        self._known = blocks(model)
        if len(model.inputs) != 1:
            raise ValueError(
                "Many wirings at once need a model of one input: evaluate rewire(model, plan) for each plan instead. "
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
        self._group = [0] * len(self._plans)  # of each plan: which copy of the batch is its own
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
        """Returns the outputs of every plan for a batch.

        Args:
            x: `(n, ...)`, of the model's input shape; or the model's structure
                of it.

        Returns:
            A NumPy array `(plans, n, ...)`.
        """
        if isinstance(x, (tuple, list, dict)):
            tensors = keras.tree.flatten(x)
            if len(tensors) == 1 and np.ndim(tensors[0]):  # the structure of a model built with [input]
                (x,) = tensors
        x = np.asarray(ops.convert_to_numpy(x))
        n = len(x)
        self._size = max(self._size, n)
        if n < self._size:  # a batch of another size would be traced and compiled anew
            x = np.concatenate([x, np.repeat(x[:1], self._size - n, 0)])
        output = np.asarray(self._model.predict_on_batch(x))
        return output.reshape(self._copies, len(x), *output.shape[1:])[self._group, :n]

    def switch_off(self, name: str) -> None:
        """Takes one of the `switches` out of every plan: its input passes as it is.

        Args:
            name: The block's name.
        """
        self._switches[name].off.assign(True)

    def _visit(self, layer: keras.layers.Layer, *args: Any, **kwargs: Any) -> Any:
        if holds_blocks(layer):
            return walk_nested(layer, self._visit, args[0])
        before = self._check_one_path(layer, (args, kwargs))
        forks = self._forks
        y = self._step(layer, *args, **kwargs) if isinstance(layer, GatedBlock) else layer(*args, **kwargs)
        # What is made from a batch before a fork has its few copies, also where it is made after the fork.
        made = self._forks if self._forks > forks else before
        for tensor in keras.tree.flatten(y):
            # Weights, and gates that do not depend on the data: the same before and behind a fork.
            if made is not None and not isinstance(layer, (SharedKernels, ChannelGate)):
                self._made[id(tensor)] = made
            self._tensors.append(tensor)
        return y

    def _step(self, block: GatedBlock, x: Any, **shared: Any) -> Any:
        """Calls a block, or what the plans replace it by, each for its copies of the batch."""
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
            what = "nothing (None)" if target is None else repr(target.name)
            raise ValueError(
                f"{what} cannot replace block {block.name!r}, which takes shape {tuple(x.shape)} and "
                f"gives shape {expected}. Received from it: shape {actual}, of shared inputs it needs: "
                f"{', '.join(sorted(needs)) or 'none'}, there are: {', '.join(sorted(shared)) or 'none'}"
            )
        return layer

    def _check_one_path(self, layer: keras.layers.Layer, inputs: Any) -> int | None:
        """Returns after how many forks a layer's inputs were made; `None` if none of them is of the batch."""
        fork_counts = {
            self._made[id(tensor)]
            for tensor in keras.tree.flatten(inputs)
            if keras.utils.is_keras_tensor(tensor) and id(tensor) in self._made
        }
        stale = isinstance(layer, GatedBlock) and bool(fork_counts - {self._forks})  # e.g. of another tower
        if len(fork_counts) > 1 or stale:
            raise ValueError(
                "Many wirings at once need a chain of blocks, and here a tensor goes around some of them: evaluate "
                f"rewire(model, plan) for each plan instead. Received: layer {layer.name!r} with inputs (or a mask) "
                "from before and after a block that differs between the plans"
            )
        return next(iter(fork_counts), None)


class _Switch(keras.layers.Layer):
    """`y`, or `x` once it is off."""

    def __init__(self, **kwargs: Any):
        super().__init__(autocast=False, **kwargs)
        self.supports_masking = True
        self.off = self.add_weight((), "zeros", "bool", trainable=False, name="off")
        self.built = True  # else Keras on JAX would first run the whole network step by step

    def call(self, x: Any, y: Any) -> Any:
        return ops.where(ops.convert_to_tensor(self.off), ops.cast(x, y.dtype), y)


class _Fork(keras.layers.Layer):
    """Several layers instead of one block, each for some of the copies that a batch consists of."""

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
        """Does nothing: the blocks are built."""

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
        """Those copies of the batch, one behind the other."""
        if chosen == list(range(self._total)) or tensor.shape[0] == 1:  # gates that do not depend on the data
            return tensor
        shape = ops.shape(tensor)[1:]
        copies = ops.reshape(tensor, (self._total, -1, *shape))
        if len(chosen) == 1:
            return copies[chosen[0]]
        return ops.reshape(ops.take(copies, np.array(chosen, "int32"), axis=0), (-1, *shape))
