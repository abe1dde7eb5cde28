"""A network in float32, whatever it was built in: exported files are of one precision."""

import keras

from keras_highway.models.trainable import cloned_without_compiling

_OTHERS = {"bfloat16", "float16", "float64"}


def in_float32(model: keras.Model) -> keras.Model:
    """Returns a network with the same weights that computes in float32; the model itself, where it does already.

    Args:
        model: A network.

    Raises:
        ValueError: If layers cannot be built again in float32.
    """
    if not _others(model):
        return model
    try:
        with cloned_without_compiling(model):
            copy = keras.models.clone_model(
                model, _inputs_in_float32(model), clone_function=_layer_in_float32, recursive=True
            )
        copy.set_weights(model.get_weights())
    except (TypeError, ValueError) as error:
        raise ValueError(f"{_refusal(model)}, which failed here: {error}") from error
    if _others(copy):
        raise ValueError(f"{_refusal(model)}, which failed here: {_others(copy)[0]!r} stays.")
    return copy


def _refusal(model) -> str:
    return (
        f"Networks are exported in float32. Build {model.name!r} with dtype='float32' and give it the weights; "
        f"it computes in {_others(model)[0]!r}, and is built again in float32"
    )


def _others(model) -> list[str]:
    """Dtypes other than float32 that layers compute or give."""
    # An input gives the dtype it was made with; the policy that it has besides is the global one.
    layers = [layer for layer in model._flatten_layers() if not isinstance(layer, keras.layers.InputLayer)]
    dtypes = [layer.compute_dtype for layer in layers if layer is not model]
    dtypes += [keras.backend.standardize_dtype(x.dtype) for x in getattr(model, "inputs", None) or ()]
    dtypes += [getattr(layer, "skip_dtype", None) for layer in model._flatten_layers()]
    return sorted(_OTHERS.intersection(dtypes))


def _inputs_in_float32(model):
    """Inputs for the copy, where the model's are of another float dtype; else `None`: Keras copies them as they are."""
    if not any(x.dtype in _OTHERS for x in getattr(model, "inputs", None) or ()):
        return None
    # A sequential model has no `input` before it was called.
    known = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    return keras.tree.map_structure(_input_in_float32, known)


def _input_in_float32(x):
    dtype = "float32" if x.dtype in _OTHERS else x.dtype
    return keras.Input(batch_shape=x.shape, dtype=dtype, name=x.name)


def _layer_in_float32(layer):
    config = {**layer.get_config(), "dtype": "float32"}
    if "skip_dtype" in config:
        config["skip_dtype"] = "float32"
    return type(layer).from_config(config)
