"""Published checkpoints to our layers: PyTorch's names and NumPy arrays, no PyTorch needed."""

from keras_highway.convert.torch_names import assign_torch_state, torch_state, torch_variables

__all__ = ["assign_torch_state", "torch_state", "torch_variables"]
