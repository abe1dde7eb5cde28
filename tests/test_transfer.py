"""features, reset_classifier, freeze."""

import keras
import numpy as np
import pytest
from keras import layers
from miniatures import MINIATURES, miniature, numpy, replace_variants

import keras_highway as kh
from keras_highway._support.keras_models import without_values
from keras_highway.specs import override
from keras_highway.variants import VARIANTS
from keras_highway.weights import files as weights_file

X = np.random.default_rng(0).random((2, 64, 64, 3), "float32")


def tiny(**kwargs):
    options = {"weights": None, "classes": 5, "blocks": (1, 2, 1, 1), "widths": (4, 4, 8, 8)}
    return kh.Highway50(**{**options, "input_shape": (64, 64, 3), **kwargs})


@pytest.mark.parametrize("shape", [(64, 64, 3), (None, None, 3)])
def test_features(shape):
    model = tiny(input_shape=shape)
    pyramid = kh.features(model)
    assert [tuple(f) for f in pyramid.info] == [
        ("stage1", "stage1_block1", 4, 16),
        ("stage2", "stage2_block2", 8, 16),
        ("stage3", "stage3_block1", 16, 32),
        ("stage4", "stage4_block1", 32, 32),
    ]
    outputs = pyramid.model(X)
    for info in pyramid.info:
        assert outputs[info.stage].shape == (2, 64 // info.stride, 64 // info.stride, info.channels)
        by_name = keras.Model(model.input, model.get_layer(info.layer).output)(X)
        np.testing.assert_array_equal(np.asarray(outputs[info.stage]), np.asarray(by_name))


def test_batch_normalization_is_frozen_alone():
    model = tiny()
    model.compile("sgd", "mse")
    kh.freeze_batch_norm(model)
    frozen = {w.name for w in model.weights} - {w.name for w in model.trainable_weights}
    assert frozen == {"gamma", "beta", "moving_mean", "moving_variance"}
    before = numpy(model.get_layer("stem").weights[-1])
    model(X, training=True)
    np.testing.assert_array_equal(numpy(model.get_layer("stem").weights[-1]), before)
    assert all(w.name not in ("gamma", "beta") for w in model.trainable_weights)


def test_no_classes_are_the_features_of_the_head():
    model = tiny()
    features = kh.reset_classifier(model, 0)
    logits = features(X) @ model.get_layer("head").kernel + model.get_layer("head").bias
    np.testing.assert_allclose(numpy(keras.ops.softmax(logits)), numpy(model(X)), rtol=1e-5)
    assert [f.stage for f in kh.features(model, out_indices=(2, 4)).info] == ["stage2", "stage4"]


@pytest.fixture(params=["sequential", "functional"])
def nested(request):
    """A net inside of a user's model."""
    body = tiny(include_top=False, pooling="avg")
    parts = [layers.RandomFlip(), body, layers.Dense(5, name="head")]
    if request.param == "sequential":
        return keras.Sequential([keras.Input((64, 64, 3)), *parts]), body
    x = inputs = keras.Input((64, 64, 3))
    for part in parts:
        x = part(x)
    return keras.Model(inputs, x), body


def test_features_and_groups_of_a_nested_net_are_its_own(nested):
    model, body = nested
    pyramid, expected = kh.features(model, "stage2", "avg"), kh.features(body, "stage2", "avg")
    assert pyramid.info == expected.info
    ours, theirs = (numpy(one.model(X, training=False)["stage2"]) for one in (pyramid, expected))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    groups = kh.layer_groups(model)
    assert list(groups) == ["stem", "stage1", "stage2", "stage3", "stage4", "head"]
    assert [layer.name for layer in groups["stage2"]] == ["stage2_block1", "stage2_block2"]
    assert [layer.name for layer in groups["head"]] == ["head"]


def test_a_nested_net_is_frozen_up_to_a_stage_and_gets_a_new_head(nested):
    model, body = nested
    model.compile("sgd", "mse")
    kh.freeze(model, "stage3")
    expected = [*body.get_layer("stage4_block1").trainable_weights, *model.get_layer("head").trainable_weights]
    assert [w.path for w in model.trainable_weights] == [w.path for w in expected]
    kh.freeze(model)
    assert len(model.trainable_weights) == 2
    kh.unfreeze(model, "stage4")
    assert [w.path for w in model.trainable_weights] == [w.path for w in expected]
    new = kh.reset_classifier(model, 3, None)
    assert new.output_shape == (None, 3) and new.layers[-2] is body
    whole = keras.Sequential([keras.Input((64, 64, 3)), tiny()])
    assert kh.reset_classifier(whole, 3).output_shape == (None, 3)
    with pytest.raises(ValueError, match="get_layer"):
        kh.reset_classifier(keras.Sequential([keras.Input((64, 64, 3)), body, layers.Dense(2)]), 3)


@pytest.mark.parametrize("options", [{}, {"include_top": False}, {"include_top": False, "pooling": "avg"}])
def test_reset_classifier_shares_the_body(options):
    model = tiny(**options)
    new = kh.reset_classifier(model, 3, activation=None)
    assert new.output_shape == (None, 3)
    assert new.get_layer("stage3_block1") is model.get_layer("stage3_block1")
    if not options:
        assert model.output_shape == (None, 5)
        assert new.get_layer("head") is not model.get_layer("head")


def test_freeze_stops_training_and_batch_statistics():
    model = tiny()
    model.compile("sgd", "sparse_categorical_crossentropy")
    kh.freeze(model, until="stage3")
    frozen = [layer for layer in model.layers if not layer.trainable]
    assert frozen[-1].name == "stage3_block1" and model.get_layer("stage4_block1").trainable
    before = {w.path: np.array(w) for w in model.weights}
    model.fit(X, np.array([0, 1]), epochs=2, verbose=0)
    for layer in model.layers:
        changed = [not np.array_equal(before[w.path], np.asarray(w)) for w in layer.weights]
        if layer in frozen:
            assert not any(changed), layer.name
    assert any(not np.array_equal(before[w.path], np.asarray(w)) for w in model.get_layer("head").weights)


def trainable(model):
    return [layer.name for layer in model.layers if layer.weights and layer.trainable]


def test_unfreeze_everything_or_from_a_stage_on():
    model = tiny()
    everything = trainable(model)
    kh.freeze(model)
    assert trainable(model) == ["head"]
    kh.unfreeze(model, since="stage3")
    assert trainable(model) == ["stage3_block1", "stage4_block1", "head"]
    kh.unfreeze(model, since="stage2_block2")
    assert trainable(model)[0] == "stage2_block2"
    model.trainable = False
    kh.unfreeze(model)
    assert trainable(model) == everything
    with pytest.raises(ValueError, match=r"Did you mean 'stage4'.*since='stage44'"):
        kh.unfreeze(model, since="stage44")


@pytest.mark.parametrize("variant", ["mnist10_w16", "highway20"])
def test_the_stem_is_before_the_first_stage_whose_dropout_is_before_it(variant):
    model = without_values(lambda: kh.create_model(variant))
    everything = trainable(model)
    assert everything[0] == "stem"
    kh.freeze(model)
    kh.unfreeze(model, since="stage1")
    assert trainable(model) == everything[1:]
    groups = kh.layer_groups(model)
    assert list(groups)[:2] == ["stem", "stage1"] and [layer.name for layer in groups["stem"]] == ["stem"]


def test_freeze_of_a_model_without_a_head_is_an_error():
    model = tiny(include_top=False)
    with pytest.raises(ValueError, match=r"a layer 'head'.*until="):
        kh.freeze(model)
    assert trainable(model)
    kh.freeze(model, until="stage4")
    assert not trainable(model)


@pytest.mark.parametrize(("pool", "reduce"), [("avg", np.mean), ("max", np.max)])
def test_pooled_features(pool, reduce):
    model = tiny()
    maps, vectors = kh.features(model), kh.features(model, pool=pool)
    assert vectors.info == maps.info
    expected, actual = maps.model(X), vectors.model(X)
    for stage, values in actual.items():
        np.testing.assert_allclose(np.asarray(values), reduce(np.asarray(expected[stage]), axis=(1, 2)), atol=1e-5)
    with pytest.raises(ValueError, match="`pool` must be one of None, 'avg', 'max'"):
        kh.features(model, pool="mean")


def test_num_features():
    assert [kh.num_features(tiny(**options)) for options in ({}, {"include_top": False})] == [32, 32]
    assert kh.num_features(kh.create_model("highway_fc10", depth=3, units=6)) == 6


def test_rates_by_layer_groups():
    """After one step of SGD every weight has moved by its gradient times the rate of its group."""
    if not hasattr(keras.optimizers, "MultiOptimizer"):
        pytest.skip("an optimizer of Keras 3.15")
    model = kh.create_model("highway_fc10", classes=3, depth=3, units=6)
    groups = kh.layer_groups(model)
    rates = {"stem": 0.25, "stage1": 0.5, "head": 1.0}
    x, y = np.random.default_rng(0).random((4, 28, 28, 1), "float32"), np.array([0, 1, 2, 0])

    def change(optimizer):
        model.compile(optimizer, "sparse_categorical_crossentropy", run_eagerly=True)
        before = model.get_weights()
        model.train_on_batch(x, y)
        after = model.get_weights()
        model.set_weights(before)
        return {w.path: a - b for w, a, b in zip(model.weights, after, before, strict=True)}

    own = {
        weight.path: optimizer
        for name, layers in groups.items()
        for optimizer in [keras.optimizers.SGD(rates[name])]
        for layer in layers
        for weight in layer.weights
    }
    whole = change(keras.optimizers.SGD(1.0))
    actual = change(keras.optimizers.MultiOptimizer(lambda weight: own[weight.path]))
    for name, group in groups.items():
        for weight in (w for layer in group for w in layer.trainable_weights):
            np.testing.assert_allclose(actual[weight.path], rates[name] * whole[weight.path], rtol=1e-3, atol=1e-6)


def test_layer_groups():
    groups = kh.layer_groups(tiny())
    assert {name: [layer.name for layer in layers] for name, layers in groups.items()} == {
        "stem": ["stem"],
        "stage1": ["stage1_block1"],
        "stage2": ["stage2_block1", "stage2_block2"],
        "stage3": ["stage3_block1"],
        "stage4": ["stage4_block1"],
        "head": ["head"],
    }
    tied = kh.layer_groups(kh.create_model("highway110", gate="tied", blocks=(2,), widths=(4,), stem_width=4))
    assert {layer.name for layer in tied["stage1"]} == {"stage1_block1", "stage1_block2", "stage1_gate"}
    with pytest.raises(ValueError, match="must have layers named"):
        kh.layer_groups(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]))


SMALL = {"blocks": (2, 1, 1), "widths": (4, 8, 8), "stem_width": 4, "classes": 3, "input_shape": (32, 32, 3)}


def image_net(**options):
    return kh.create_model("highway20", **{**SMALL, **options})


def dense_net(**options):
    x = inputs = keras.Input((6,))
    for name in ("b1", "b2"):
        x = kh.layers.HighwayDense(name=name, **options)(x)
    return keras.Model(inputs, layers.Dense(3, name="head")(x))


NETS = {
    "conv": image_net,
    "dense": dense_net,
    "stack": lambda: kh.create_model("highway_fc1000", depth=4, units=5, input_shape=(4, 4, 1)),
}


def copies(model, tmp_path):
    model.save(tmp_path / "net.keras")
    yield keras.models.load_model(tmp_path / "net.keras")
    yield keras.models.clone_model(model)


@pytest.mark.parametrize("name", NETS)
def test_copies_of_a_frozen_net_train_the_same_weights(name, tmp_path):
    model = NETS[name]()
    everything = len(model.trainable_weights)
    kh.freeze(model)
    assert len(model.trainable_weights) == 2  # kernel and bias of the head
    for copy in copies(model, tmp_path):
        assert len(copy.weights) == len(model.weights) and len(copy.trainable_weights) == 2
        for layer in copy.layers:
            layer.trainable = True  # nothing is frozen for good
        assert len(copy.trainable_weights) == everything


IMAGES = np.random.default_rng(0).normal(size=(2, 32, 32, 1)).astype("float32")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A network of three channels, the name of its variant and its weight file."""
    name, patch, small = "small", pytest.MonkeyPatch(), {"blocks": (1, 1)}
    variants = {**VARIANTS, name: override(MINIATURES["conv_net"], name=name, **small)}
    replace_variants(patch, variants)
    model = miniature("conv_net", input_shape=(32, 32, 3), **small)
    path = tmp_path_factory.mktemp("weights") / "model.weights.h5"
    weights_file.save(model, path, name, model.output_shape[-1])
    yield model, name, path
    patch.undo()


def with_channels(trained, channels):
    _, name, path = trained
    return kh.create_model(name, weights=path, input_shape=(32, 32, channels), classifier_activation=None)


@pytest.mark.parametrize("channels", [1, 6])
def test_a_grey_image_gives_the_logits_of_its_three_equal_channels(trained, channels):
    expected = numpy(trained[0](np.repeat(IMAGES, 3, -1)))
    actual = numpy(with_channels(trained, channels)(np.repeat(IMAGES, channels, -1)))
    np.testing.assert_allclose(actual, expected, atol=1e-4)


@pytest.mark.parametrize("channels", [1, 2, 4, 6])
def test_the_kernels_are_timms(trained, channels):
    """timm's `adapt_input_conv`, by hand."""
    kernel = np.asarray(numpy(trained[0].get_layer("stem").weights[0]))
    red, green, blue = (kernel[:, :, [c]] for c in range(3))
    kernels = {
        1: [red + green + blue],
        2: [red * 1.5, green * 1.5],
        4: [0.75 * k for k in (red, green, blue, red)],
        6: [0.5 * k for k in (red, green, blue) * 2],
    }[channels]
    model = with_channels(trained, channels)
    np.testing.assert_allclose(
        numpy(model.get_layer("stem").weights[0]), np.concatenate(kernels, axis=2), rtol=1e-5, atol=1e-7
    )
    for actual, expected in zip(model.weights[1:], trained[0].weights[1:], strict=True):
        np.testing.assert_array_equal(numpy(actual), numpy(expected))
