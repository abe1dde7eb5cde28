"""The character-aware language model [UIE, 5.2; Kim et al. 2015], from a `CharLMSpec`."""

from collections.abc import Callable

import keras

from keras_highway._support.keras_models import input_in, scale_losses_as
from keras_highway._support.numerics import cross_entropy
from keras_highway.layers import CarriedLSTM, CharCNN, CharEmbedding, HierarchicalSoftmax, HighwayDense, TakeRows
from keras_highway.layers.ungated import Dense
from keras_highway.specs import CharLMSpec, block_options, check, stochastic_depth_rates


def build_char_lm(spec: CharLMSpec, classifier_activation="softmax", name=None, dtype=None) -> keras.Model:
    """Build the network a spec describes, with random weights.

    A word's vector depends on its spelling alone. So the network has two
    inputs: the spelling of some words, and which of them stands at each
    position. Passing every distinct word of a batch once yields the same
    output as passing one word per position, for less work; see
    `keras_highway.data.ptb`.

    Inputs: integers `(words, characters per word)` and `(streams, steps)`, the
    latter numbers of words, from 0. Output: `(streams, steps, classes)`. The
    state of the LSTMs is carried from batch to batch, see `reset_state`.
    """
    check(spec)
    if keras.dtype_policies.get(dtype).compute_dtype == "float64":
        raise ValueError(
            "Language models compute in float32 at most: their LSTMs keep gates and state in it. "
            f"Received: dtype={dtype!r}"
        )
    characters = keras.Input(spec.input_shape, dtype="int32", name="characters")
    positions = keras.Input(batch_shape=(spec.streams, None), dtype="int32", name="positions")
    x = TakeRows(name="take", dtype=dtype)(word_vectors(spec, characters, dtype), positions)
    for index in range(1, spec.lstms + 1):
        x = CarriedLSTM(
            spec.units,
            spec.streams,
            kernel_initializer=_uniform(spec),
            bias_initializer=_uniform(spec),
            name=f"lstm{index}",
            dtype=dtype,
        )(x)
        x = keras.layers.Dropout(spec.dropout, name=f"dropout{index}", dtype=dtype)(x)
    head = HierarchicalSoftmax if spec.hierarchical else Dense
    y = head(
        spec.classes, kernel_initializer=_uniform(spec), bias_initializer=_uniform(spec), name="head", dtype=dtype
    )(x)
    # Half of a step's products are the head's; only what follows them must be float32.
    y = keras.layers.Activation(classifier_activation or "linear", name="predictions", dtype="float32")(y)
    model = keras.Model([characters, positions], y, name=name or spec.name)
    scale_losses_as(model, dtype)
    return model


def word_vectors(spec: CharLMSpec, characters, dtype=None):
    """Map `(words, characters per word)` to `(words, sum(filters))`: embedding, convolutions, highway layers."""
    x = CharEmbedding(
        spec.characters, spec.char_units, embeddings_initializer=_uniform(spec), name="char_embedding", dtype=dtype
    )(characters)
    x = CharCNN(
        spec.kernels,
        spec.filters,
        kernel_initializer=_uniform(spec),
        bias_initializer=_uniform(spec),
        name="char_cnn",
        dtype=dtype,
    )(x)
    for index, rate in enumerate(stochastic_depth_rates(spec, spec.highways), start=1):
        x = HighwayDense(
            kernel_initializer=_uniform(spec),
            bias_initializer=_uniform(spec),
            stochastic_depth=rate,
            name=f"stage1_block{index}",
            dtype=dtype,
            **block_options(spec),
        )(x)
    return x


def make_token_losses(model: keras.Model) -> Callable:
    """Return a function (spelled words, positions, targets) -> loss of every token, float32 `(streams, steps)`."""
    head = model.get_layer("head")
    if not isinstance(head, HierarchicalSoftmax):

        def losses(spelled, positions, targets):
            return cross_entropy(model([spelled, positions], training=True), targets)

        return losses
    body = keras.Model(model.inputs, input_in(model, head))
    return lambda spelled, positions, targets: (
        -head.target_log_probabilities(body([spelled, positions], training=True), targets)
    )


def word_part(network: keras.Model) -> keras.Model:
    """Return the model from spelled words to their vectors, which shares the layers of a network."""
    take = next(layer for layer in network.layers if isinstance(layer, TakeRows))
    return keras.Model(network.inputs[0], input_in(network, take)[0], name=f"{network.name}_words")


def reset_state(model: keras.Model) -> None:
    """Set the state of every `CarriedLSTM` of a model to zero, as at the start of a text."""
    for layer in model._flatten_layers():  # pyright: ignore[reportPrivateUsage] (Keras has no public way to them)
        if isinstance(layer, CarriedLSTM) and layer.built:
            layer.reset_state()


def _uniform(spec):
    """Return a new instance per parameter: one instance without a seed gives the same values each time."""
    return keras.initializers.RandomUniform(-spec.init_range, spec.init_range)
