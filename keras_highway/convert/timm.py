"""timm's and torchvision's ResNets as models of ours."""

from pathlib import Path

import keras
import numpy as np

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


def model_of(source: Path, variant: str) -> tuple[keras.Model, int]:
    """Returns a variant's model with the weights of a state dict with PyTorch's names, and its number of classes.

    Args:
        source: A `.safetensors` file in timm's or torchvision's layout (or,
            for the CIFAR 110-layer nets, the authors').
        variant: The architecture, e.g. `"resnet50"`.

    Raises:
        ValueError: If names or shapes are not the variant's.
    """
    state = read_safetensors(source)
    classifier = next((state[name] for name in ("fc.weight", "linear.weight") if name in state), None)
    if classifier is None:
        raise ValueError(f"{source} has no classifier, fc.weight or linear.weight: {len(state)} other arrays.")
    classes = int(classifier.shape[0])
    model = build(VARIANTS[variant], classes=classes)
    assign_torch_state(model, state)
    return model, classes
