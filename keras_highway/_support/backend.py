"""A sentence where the package of Keras's backend is missing; imports nothing."""

import importlib.util

BACKENDS = ("tensorflow", "jax", "torch")


def explained(error: ModuleNotFoundError) -> ImportError:
    """Returns what to raise where Keras could not be imported.

    Args:
        error: What was raised.

    Returns:
        An `ImportError` that states what to install or to set, if a backend is
        missing; else `error`.
    """
    missing = (error.name or "").split(".")[0]
    if missing not in BACKENDS:
        return error
    installed = [name for name in BACKENDS if name != missing and importlib.util.find_spec(name)]
    choice = f"set KERAS_BACKEND={installed[0]}, which is installed, or " if installed else ""
    return ImportError(
        f"Keras's backend here is {missing}, which is not installed: {choice}"
        f'pip install "keras-highway[{missing}]" (extras: {", ".join(BACKENDS)}).'
    )
