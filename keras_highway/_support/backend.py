"""The program, its backend and the public names of packages. Nothing here imports Keras before it is needed."""

import contextlib
import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

BACKENDS = ("tensorflow", "jax", "torch")


def explained(error: ModuleNotFoundError) -> ImportError:
    """Return the error to raise if Keras cannot be imported."""
    missing = (error.name or "").split(".")[0]
    if missing not in BACKENDS:
        return error
    installed = [name for name in BACKENDS if name != missing and importlib.util.find_spec(name)]
    choice = f"set KERAS_BACKEND={installed[0]}, which is installed, or " if installed else ""
    return ImportError(
        f"Keras's backend here is {missing}, which is not installed: {choice}"
        f'pip install "keras-highway[{missing}]" (extras: {", ".join(BACKENDS)}).'
    )


COMMAND, MODULE, OTHER = "command", "module", ""
_SCRIPT = "keras-highway"


def program_of(package: str) -> str:
    """Return the kind of program that imports `package`."""
    if Path(sys.argv[0] if sys.argv else "").name.removesuffix(".exe") == _SCRIPT:
        return COMMAND
    if sys.argv[:1] != ["-m"]:  # what Python puts there until it has located the module
        return OTHER
    words = sys.orig_argv[1:]
    if package in words:
        return COMMAND
    return MODULE if any(word.startswith(f"{package}.") for word in words) else OTHER


@functools.cache
def tensorflow() -> Any:
    """Return TensorFlow as a reader of data; with another backend, without GPUs, whose memory it would fill.

    To be called before anything of TensorFlow or TensorFlow Datasets is read:
    its first operation allocates every GPU that it sees. Devices that the
    user's program has used before stay unchanged.
    """
    import keras  # here: commands that only list do not wait for it; not below, where its errors are its own

    from keras_highway._support.schema import reworded

    text = 'TensorFlow reads photographs, whatever backend trains: pip install "keras-highway[tensorflow]"'
    with reworded(text, ImportError, ImportError):
        import tensorflow as tf

        if keras.backend.backend() != "tensorflow":
            with contextlib.suppress(RuntimeError):  # it has been used: too late to hide them
                tf.config.set_visible_devices([], "GPU")
    return tf


def only_public(package: str, modules: tuple[str, ...] = (), lazy: tuple[str, ...] = ()) -> None:
    """Limit `dir()`, `help()` and `import *` of a package to its public names, at the end of its `__init__.py`."""
    namespace = vars(sys.modules[package])
    ours = {name for name, value in namespace.items() if name[0] != "_" and not isinstance(value, ModuleType)}
    public = sorted(ours | {name for name in modules if name in namespace} | set(lazy))
    namespace["__all__"] = public

    def listed() -> list[str]:
        return sorted(public + [name for name in namespace if name.startswith("__")])

    namespace["__dir__"] = listed


def scope_of(model: Any) -> contextlib.AbstractContextManager[Any]:
    """Return the scope that a model was made in, or a context that does nothing."""
    import keras

    if keras.config.backend() != "tensorflow":
        return contextlib.nullcontext()
    import tensorflow as tf

    own = getattr(model, "_distribute_strategy", None)
    if tf.distribute.has_strategy() and tf.distribute.get_strategy() is not own:
        raise ValueError(
            f"Model {model.name!r} was made {'outside of' if own is None else 'in the scope of another strategy than'} "
            "the strategy whose scope is open: change what is trainable outside of that scope."
        )
    return contextlib.nullcontext() if own is None else own.scope()
