"""timm's and torchvision's ResNets as weight files of ours: `.safetensors` in, `.weights.h5` out."""

from pathlib import Path

import numpy as np

from keras_highway import weights_file
from keras_highway.convert.torch_names import assign_torch_state
from keras_highway.models.builder import build
from keras_highway.variants import VARIANTS


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Returns the arrays of a `.safetensors` file by name.

    Args:
        path: The file.

    Raises:
        ValueError: If it is none, or is truncated.
    """
    import safetensors
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(f"{path} is no safetensors file, or is truncated: {error}") from error


def convert_torch_file(source: Path, target: Path, variant: str) -> None:
    """Writes the weight file of a variant from a state dict with PyTorch's names; whole or not at all.

    Args:
        source: A `.safetensors` file in timm's or torchvision's layout (or,
            for the CIFAR 110-layer nets, the authors').
        target: The `.weights.h5` file to write.
        variant: The architecture, e.g. `"resnet50"`.

    Raises:
        ValueError: If names or shapes are not the variant's.
    """
    state = read_safetensors(source)
    classifier = next((state[name] for name in ("fc.weight", "linear.weight") if name in state), None)
    if classifier is None:
        raise ValueError(f"{source} has no classifier, fc.weight or linear.weight: {len(state)} other arrays.")
    model = build(VARIANTS[variant], classes=int(classifier.shape[0]))
    assign_torch_state(model, state)
    weights_file.save(model, target, variant, int(classifier.shape[0]))
