"""A ResNet as a highway net: the same function, with gates that learn."""

import keras
import numpy as np
import pytest
from miniatures import numpy
from oracles.seeded_state import seeded_images, seeded_state

import keras_highway as kh
from keras_highway.weights.torch_names import assign_torch_state, torch_state

DEPTHS = ("resnet50", "resnet101", "resnet152")
NARROW = {"widths": (4, 4, 8, 8), "stem_width": 8, "classes": 7}  # deep as ever: the factors are what is tested
FLAT = {"blocks": (2, 2, 1, 1), **NARROW}
IMAGES = seeded_images(2, 64)


def resnet(variant="resnet50", size=64, **changes):
    """A ResNet with seeded random weights and BN statistics that gives logits."""
    options = {"input_shape": (size, size, 3), "classifier_activation": None, **changes}
    model = kh.create_model(variant, **options)
    if options.get("batch_norm", True):
        shapes = [(name, array.shape) for name, array in torch_state(model).items()]
        assign_torch_state(model, seeded_state(shapes))
    return model


def check_same_function(net, highway, images=IMAGES, atol=1e-4):
    """Compare logits with moving statistics, batch statistics, and the changed moving ones."""
    before = numpy(net(images, training=False))
    for training in (False, True, False):
        expected, actual = (numpy(model(images, training=training)) for model in (net, highway))
        np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)
    assert before.std() > 1e-2 and np.abs(expected - before).max() > 10 * atol


@pytest.mark.parametrize(
    ("variant", "gate"),
    [("resnet50", "channel"), ("resnet50", "same")],
)
def test_the_same_function_at_every_depth(variant, gate):
    net = resnet(variant, **NARROW)
    highway = kh.highway_from_resnet(net, gate=gate)
    assert highway.name == f"{variant.replace('resnet', 'highway')}_from_{variant}"
    assert [layer.name for layer in highway.layers] == [layer.name for layer in net.layers]
    assert not {id(w) for w in highway.weights} & {id(w) for w in net.weights}
    check_same_function(net, highway)


@pytest.mark.slow
@pytest.mark.parametrize("gate", ["channel", "same"])
@pytest.mark.parametrize("variant", DEPTHS)
def test_the_same_function_at_full_width(variant, gate):
    net = resnet(variant)
    check_same_function(net, kh.highway_from_resnet(net, gate=gate))


@pytest.mark.parametrize(
    ("variant", "changes"),
    [("resnet110", {"blocks": (3, 2, 2), "classes": 7}), ("resnet50_uie_nobn", FLAT)],
)
@pytest.mark.more
def test_other_nets_of_the_zoo(variant, changes):
    batch_norm = changes.get("batch_norm", not variant.endswith("nobn"))
    net = resnet(variant, batch_norm=batch_norm, **changes)
    for gate in ("channel", "same"):
        highway = kh.highway_from_resnet(net, gate=gate)
        if batch_norm:
            check_same_function(net, highway)
        else:
            expected = numpy(net(IMAGES))
            np.testing.assert_allclose(numpy(highway(IMAGES)), expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("gating", ["coupled", "full", "t_only", "c_only"])
@pytest.mark.more
def test_every_gating_and_epsilon(gating):
    net = resnet(**FLAT)
    highway = kh.highway_from_resnet(net, gating=gating, epsilon=0.02, gate="same")
    check_same_function(net, highway)
    for _, signals in kh.analysis.trace(highway, IMAGES).items():
        if gating != "c_only":
            np.testing.assert_allclose(signals.t, 0.02, rtol=1e-5)
        if gating in ("full", "c_only"):
            np.testing.assert_allclose(signals.c, 1 - 0.02, rtol=1e-5)


@pytest.mark.more
def test_how_many_parameters_gates_have():
    net = kh.ResNet50(weights=None, input_shape=(None, None, 3))
    assert kh.highway_from_resnet(net).count_params() - net.count_params() == 15_104


def gates_of(model, *names):
    """Values of the gates' parameters of these names, by path."""
    return {w.path: numpy(w).copy() for w in model.weights if "transform_gate" in w.path and w.name in names}


def moved(before, after):
    """The share of numbers that changed, in the array where it is smallest."""
    return min(float(np.mean(after[path] != before[path])) for path in before)


def trained(model):
    model.compile(keras.optimizers.SGD(1.0), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.train_on_batch(IMAGES, np.array([1, 3]))
    return model


@pytest.mark.more
def test_gradients_reach_every_channel_gate():
    highway = kh.highway_from_resnet(resnet(**FLAT))
    before = gates_of(highway, "logit")
    assert len(before) == 6 and {float(v.std()) for v in before.values()} == {0.0}
    assert moved(before, gates_of(trained(highway), "logit")) > 0.7  # the rest: channels that the ReLU shuts


@pytest.mark.more
def test_saved_and_loaded(tmp_path):
    highway = kh.highway_from_resnet(resnet(**FLAT), gate="same", name="mine")
    highway.save(tmp_path / "net.keras")
    again = keras.saving.load_model(tmp_path / "net.keras")
    assert again.name == "mine"
    np.testing.assert_allclose(numpy(again(IMAGES)), numpy(highway(IMAGES)), atol=1e-6)


@pytest.mark.more
def test_what_is_frozen_stays_frozen_but_the_gates():
    net = resnet(**FLAT)
    kh.freeze(net)
    highway = kh.highway_from_resnet(net)
    assert {w.name for w in highway.trainable_weights} == {"logit", "kernel", "bias"}
    assert len(highway.trainable_weights) == 6 + 2  # a gate a block; the classifier
    expected, actual = (numpy(model(IMAGES, training=True)) for model in (net, highway))
    np.testing.assert_allclose(actual, expected, atol=1e-4)  # frozen batch normalization keeps its statistics


def branched():
    inputs = keras.Input((32, 32, 8))
    block = kh.layers.BasicBlock(8, gating="residual", post_activation=True)(inputs)
    other = kh.layers.BasicBlock(8, gating="residual", post_activation=True)(inputs)
    return keras.Model(inputs, keras.layers.Add()([block, other]))


def on_top(*layers):
    net = resnet(include_top=False, blocks=(1, 1, 2, 2), **NARROW)
    x = net.output
    for layer in layers:
        x = layer(x)
    return keras.Model(net.input, x)


def nested():
    inner, inputs = resnet(**FLAT), keras.Input((64, 64, 3))
    return keras.Model(inputs, inner(inputs))


REFUSED = {
    "nested": (nested, "nested"),
    "highway already": (lambda: kh.create_model("highway110", blocks=(1, 1, 1)), "gating='coupled' and needs no"),
    "no post-activation": (lambda: resnet(post_activation=False, **FLAT), "Only post-activation ResNets"),
    "stochastic depth": (lambda: resnet(stochastic_depth=0.1, **FLAT), "stochastic_depth=0.0"),
    "branches": (branched, "chain of layers"),
    "unknown layer": (lambda: on_top(keras.layers.LayerNormalization()), "of type LayerNormalization"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_models_that_are_refused(case):
    make, message = REFUSED[case]
    with pytest.raises(ValueError, match=message) as error:
        kh.highway_from_resnet(make())
    assert "Received" in str(error.value)


@pytest.fixture(scope="module")
def five_blocks():
    """Nothing is changed in it."""
    return resnet(**{**FLAT, "blocks": (5, 1, 1, 1)})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 0}, "above 0 and below 1"),
        ({"epsilon": float("nan")}, "epsilon=nan"),
        ({"gate": "full"}, "one of 'channel', 'same'"),
        ({"gating": "residual"}, "one of 't_only', 'c_only', 'coupled', 'full'"),
        ({"epsilon": 0.9999999999}, "float32 cannot carry. Pass a smaller epsilon"),
    ],
)
def test_arguments_out_of_range(arguments, message, five_blocks):
    with pytest.raises(ValueError, match=message):
        kh.highway_from_resnet(five_blocks, **arguments)
