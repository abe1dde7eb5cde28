"""PyTorch state-dict names for our residual and highway networks.

Two layouts, told apart by the blocks of the model:

- Bottleneck blocks: timm's and torchvision's ResNet50/101/152. `conv1`, `bn1`,
  `layer1.0.conv1`, `layer1.0.bn1`, ..., `layer1.0.downsample.0` and `.1`, `fc`.
- Basic blocks: the CIFAR 110-layer nets of the authors' comparison
  (github flukeskywalker/highway-resnet-comparison). `conv1`, `bn1`,
  `layer1.0.conv1`, ..., `layer1.0.shortcut.0` and `.1`, `linear`; the
  convolution after the last stage (Highway111) is `convproj`, `bnproj`.

Transform gates are `gate1`, `gatebn1`, `gate2`, ... next to `conv1`, `bn1`, ...
in both. A state is a dict of NumPy arrays; PyTorch is not imported.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_highway._support.keras_models import position_of
from keras_highway.layers.blocks import BottleneckBlock, Branch, ConvBlock
from keras_highway.models.transfer import has_lora

_SHOWN = 5  # names of one kind in an error message; with a wrong net, hundreds do not match


class _Layout(NamedTuple):
    shortcut: str
    classifier: str


_IMAGENET = _Layout("downsample", "fc")
_CIFAR = _Layout("shortcut", "linear")


def torch_variables(model: keras.Model) -> dict[str, Any]:
    """Return the variables of a network under PyTorch's names."""
    layout = _layout(model)
    named = {}
    for layer in model.layers:
        if layer.weights:
            named.update(_layer_variables(layer, layout))
    return named


def torch_state(model: keras.Model) -> dict[str, np.ndarray]:
    """Return a network's weights as a PyTorch state dict of NumPy arrays, without `num_batches_tracked`."""
    return {name: _to_torch(ops.convert_to_numpy(v)) for name, v in torch_variables(model).items()}


def assign_torch_state(model: keras.Model, state: Mapping[str, Any]) -> None:
    """Set a network's weights from a PyTorch state dict of NumPy arrays, if every name and shape matches."""
    if has_lora(model):
        raise ValueError(
            f"Model {model.name!r} has low-rank updates, and its kernels are sums: assign to kh.merge_lora(model)."
        )
    variables = torch_variables(model)
    arrays = {k: np.asarray(v) for k, v in state.items() if k.rpartition(".")[2] != "num_batches_tracked"}
    _check(model, variables, arrays)
    for name, variable in variables.items():
        variable.assign(_to_keras(arrays[name]))


def _layout(model) -> _Layout:
    blocks = [layer for layer in model.layers if isinstance(layer, ConvBlock)]
    if not blocks:
        raise ValueError(
            "PyTorch names are known for networks of BasicBlocks or BottleneckBlocks (resnet50, highway110, ...). "
            f"Received: model {model.name!r}, which has none"
        )
    return _IMAGENET if isinstance(blocks[0], BottleneckBlock) else _CIFAR


def _layer_variables(layer, layout: _Layout) -> Iterator[tuple[str, Any]]:
    """Yield (PyTorch name, variable) of a direct layer of the network."""
    position = position_of(layer.name)
    if isinstance(layer, ConvBlock) and position:
        stage, index = position
        yield from _block_variables(layer, f"layer{stage}.{index - 1}.", layout)
    elif isinstance(layer, Branch) and layer.name == "stem":
        yield from _branch_variables(layer, "conv{}", "bn{}")
    elif isinstance(layer, Branch) and layer.name == "neck":
        yield from _branch_variables(layer, "convproj", "bnproj")
    elif isinstance(layer, keras.layers.Dense) and layer.name == "head":
        yield from _affine(layer, layout.classifier)
    else:
        raise _unnamed(layer.name)


def _block_variables(block: ConvBlock, prefix: str, layout: _Layout) -> Iterator[tuple[str, Any]]:
    names = {
        "transform": ("conv{}", "bn{}"),
        "transform_gate": ("gate{}", "gatebn{}"),
        "projection": (f"{layout.shortcut}.0", f"{layout.shortcut}.1"),
    }
    for path, layer in block.paths():
        if not layer.weights:  # shortcut option A
            continue
        if path not in names or not isinstance(layer, Branch):
            raise _unnamed(f"{block.name}/{path}")
        conv, bn = names[path]
        yield from _branch_variables(layer, prefix + conv, prefix + bn)


def _branch_variables(branch: Branch, conv: str, bn: str) -> Iterator[tuple[str, Any]]:
    for i in range(1, branch.depth + 1):
        yield from _affine(getattr(branch, f"conv{i}"), conv.format(i))
        if branch.batch_norm:
            norm, name = getattr(branch, f"bn{i}"), bn.format(i)
            yield f"{name}.weight", norm.gamma
            yield f"{name}.bias", norm.beta
            yield f"{name}.running_mean", norm.moving_mean
            yield f"{name}.running_var", norm.moving_variance


def _affine(layer, name: str) -> Iterator[tuple[str, Any]]:
    yield f"{name}.weight", layer.kernel
    if layer.use_bias:
        yield f"{name}.bias", layer.bias


def _unnamed(where: str) -> ValueError:
    return ValueError(
        "PyTorch names are known for stem, blocks with a transform gate of convolutions or none, neck and head. "
        f"Received: a model with weights in {where!r}; save it with model.save_weights instead"
    )


def _check(model, variables, arrays) -> None:
    """Raise one ValueError that lists everything that does not match."""
    expected = {name: _torch_shape(variable.shape) for name, variable in variables.items()}
    missing = [name for name in expected if name not in arrays]
    unexpected = [name for name in arrays if name not in expected]
    mismatched = [
        f"{name} {arrays[name].shape} instead of {shape}"
        for name, shape in expected.items()
        if name in arrays and arrays[name].shape != shape
    ]
    problems = [
        f"{len(names)} {kind}: {', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}"
        for kind, names in (("missing", missing), ("unexpected", unexpected), ("mismatched", mismatched))
        if names
    ]
    if problems:
        raise ValueError(
            f"The PyTorch state does not fit model {model.name!r}; nothing was set. Use the variant, classes and "
            f"include_top of the checkpoint. Received: {'; '.join(problems)}"
        )


def _torch_shape(shape) -> tuple[int, ...]:
    shape = tuple(shape)
    return (shape[3], shape[2], shape[0], shape[1]) if len(shape) == 4 else shape[::-1]


def _to_torch(array: np.ndarray) -> np.ndarray:
    """(height, width, in, out) -> (out, in, height, width); (in, out) -> (out, in)."""
    return np.ascontiguousarray(array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T)


def _to_keras(array: np.ndarray) -> np.ndarray:
    """(out, in, height, width) -> (height, width, in, out); (out, in) -> (in, out)."""
    return array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T
