"""From a spec to a Keras model: input, body, head, with the conventions of `keras.applications`."""

import operator

import keras

from keras_highway._support.keras_models import scale_losses_as
from keras_highway._support.schema import check_choice, checked_size
from keras_highway.data.transforms import Transform
from keras_highway.layers import Preprocessing
from keras_highway.layers.ungated import Dense
from keras_highway.models import conv_net, conv_stack, dense_stack
from keras_highway.specs import ConvNetSpec, ConvStackSpec, DenseStackSpec, NetSpec, check, override

_FAMILIES = {ConvNetSpec: conv_net, ConvStackSpec: conv_stack, DenseStackSpec: dense_stack}
POOLING = (None, "avg", "max")
TOP = ("fc", "head")  # layers with weights that a network without its top lacks


def build(
    spec: NetSpec,
    include_top=True,
    input_tensor=None,
    input_shape=None,
    pooling=None,
    classes=None,
    classifier_activation="softmax",
    name=None,
    dtype=None,
) -> keras.Model:
    """Build the network of a spec with random weights; arguments and errors as in `create_model`."""
    check(spec)
    check_choice("pooling", pooling, POOLING)
    classes = checked_size(spec.classes if classes is None else classes, "classes")
    if input_shape is None and input_tensor is None and not include_top and takes_any_size(spec, include_top):
        input_shape = in_format((None, None, spec.input_shape[2]))  # as in keras.applications
    shape = _input_shape(spec, input_tensor, input_shape, include_top)
    double = keras.dtype_policies.get(dtype).compute_dtype == "float64"
    if double:
        # JAX computes float64 in float32, silently. With `jax_enable_x64`, convolutional nets differed from plain NumPy
        # by 4e-7 (Keras 3.15, JAX 0.10).
        if keras.backend.backend() == "jax":
            raise ValueError("dtype='float64' is not for JAX: use TensorFlow or float32. Received: KERAS_BACKEND=jax")
        spec = override(spec, skip_dtype="float64")
    inputs = _input_layer(input_tensor, shape, "float64" if double else None)
    family = _FAMILIES[type(spec)]
    x = family.body(spec, inputs, dtype)
    if include_top:
        x = _head_pool(spec, x, dtype)
        initializer = family.head_kernel_initializer(spec)
        wide = "float64" if double else "float32"  # logits and probabilities, whatever the policy
        head = {"activation": classifier_activation, "kernel_initializer": initializer}
        x = keras.layers.Dense(classes, name="head", dtype=wide, **head)(x)
    elif pooling is not None and len(x.shape) == 4:
        x = _POOLS[pooling](spec)(x)
    model_inputs = [inputs] if input_tensor is None else keras.utils.get_source_inputs(input_tensor)
    model = keras.Model(model_inputs[0] if len(model_inputs) == 1 else model_inputs, x, name=name or spec.name)
    scale_losses_as(model, dtype)
    return model


def preprocessed(spec: NetSpec, transform: Transform, input_tensor=None, input_shape=None):
    """Return images behind a layer `preprocessing`, from `input_tensor` or an input of any height and width."""
    shape = _given_shape(spec, input_tensor, input_shape) or in_format((None, None, transform.channels))
    return Preprocessing(transform, name="preprocessing")(_input_layer(input_tensor, shape, None))


def takes_any_size(spec: NetSpec, include_top: bool = True) -> bool:
    """Whether the weights of a network fit images of any size, as in fully convolutional nets."""
    return not isinstance(spec, DenseStackSpec) and not (include_top and getattr(spec, "head_pool", "") == "flatten")


_POOLS = {
    "avg": lambda spec: keras.layers.GlobalAveragePooling2D(name="avg_pool", dtype=spec.skip_dtype),
    "max": lambda spec: keras.layers.GlobalMaxPooling2D(name="max_pool", dtype=spec.skip_dtype),
    "flatten": lambda spec: keras.layers.Flatten(name="flatten", dtype=spec.skip_dtype),
}


def _head_pool(spec, x, dtype):
    if len(x.shape) == 4:
        x = _POOLS[getattr(spec, "head_pool", "avg")](spec)(x)
    hidden_units = getattr(spec, "hidden_units", None)
    if hidden_units is not None:
        initializer = conv_stack.normal(None)
        x = Dense(hidden_units, activation="relu", kernel_initializer=initializer, name="fc", dtype=dtype)(x)
    dropout = getattr(spec, "head_dropout", 0.0) * getattr(spec, "dropout_scale", 1.0)
    if dropout:
        x = keras.layers.Dropout(dropout, name="head_dropout", dtype=spec.skip_dtype)(x)
    return x


def _input_layer(input_tensor, shape, dtype):
    if input_tensor is None:
        return keras.Input(shape, dtype=dtype)
    if keras.utils.is_keras_tensor(input_tensor):
        return input_tensor
    raise ValueError(
        "`input_tensor` must be a Keras tensor, the output of keras.Input or of a layer. "
        f"Received: input_tensor of type {type(input_tensor).__name__}"
    )


def _input_shape(spec, input_tensor, input_shape, include_top) -> tuple:
    """Check the shape of the input; the spec's is the default."""
    shape = _given_shape(spec, input_tensor, input_shape) or in_format(spec.input_shape)
    channels_first = keras.config.image_data_format() == "channels_first"
    size = shape[1:] if channels_first else shape[:2]
    channels = shape[0] if channels_first else shape[2]
    least = spec.min_size
    fits = channels is not None and channels >= 1 and all(s is None or s >= least for s in size)
    if not fits or (None in shape and not takes_any_size(spec, include_top)):
        fixed = "" if takes_any_size(spec, include_top) else "a fixed size of "
        raise ValueError(
            f"Variant {spec.name!r} needs images of {fixed}at least {least}x{least} pixels, and a known number "
            f"of channels. Received: input_shape={shape}"
        )
    return shape


def _given_shape(spec, input_tensor, input_shape) -> tuple | None:
    """Return the shape of the tensor, or the one passed; both must agree. `None` if neither is given."""
    given = None if input_shape is None else _checked_shape(spec, input_shape)
    if not hasattr(input_tensor, "shape"):
        return given
    shape = _checked_shape(spec, input_tensor.shape[1:])
    if given not in (None, shape):
        raise ValueError(
            "`input_shape` must match `input_tensor`, or be left out. "
            f"Received: input_shape={given}, input_tensor of shape {(None, *shape)}"
        )
    return shape


def _checked_shape(spec, input_shape) -> tuple:
    """Three numbers, or `None` for a height or width that varies."""
    try:
        shape = tuple(None if size is None else operator.index(size) for size in input_shape)
    except TypeError:
        shape = ()
    if len(shape) != 3:
        raise ValueError(
            f"Variant {spec.name!r} takes images: `input_shape` must have three numbers, "
            f"{in_format(('height', 'width', 'channels'))}. Received: input_shape={input_shape!r}"
        )
    return shape


def in_format(shape):
    """Return (height, width, channels) in the order of the backend's data format."""
    return (shape[2], shape[0], shape[1]) if keras.config.image_data_format() == "channels_first" else tuple(shape)
