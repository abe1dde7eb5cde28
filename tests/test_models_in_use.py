"""Layers and models as programs use them: threads, images that are not the network's, arguments of NumPy's, retries."""

import threading
import warnings

import keras
import numpy as np
import pytest
from miniatures import numpy

import keras_highway as kh
from keras_highway import layers
from keras_highway.weights.info import WeightFileError

SMALL = {"blocks": (1, 1, 1, 1), "widths": (4, 4, 4, 4), "classes": 3, "weights": None}
RNG = np.random.default_rng(0)


# --- Loading ------------------------------------------------------------------


@pytest.mark.slow
def test_loading_in_threads_leaves_warnings_alone():
    """Filters are the whole process's: while weights were loaded, any warning of another thread was an error."""
    filters, failed, over = list(warnings.filters), [], threading.Event()

    def warns():
        while not over.is_set():
            try:
                warnings.warn("a slow disk", UserWarning, stacklevel=1)
            except UserWarning as error:
                failed.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = list(warnings.filters)
        other = threading.Thread(target=warns)
        loads = [threading.Thread(target=kh.load, args=("mnist10_w16.tvdn",)) for _ in range(3)]
        for thread in (other, *loads):
            thread.start()
        for thread in loads:
            thread.join()
        over.set()
        other.join()
        assert warnings.filters == expected
    assert not failed and warnings.filters == filters


def test_weights_that_keras_passes_over_are_an_error(monkeypatch):
    """Keras only warns of a group that a file lacks, and leaves its layers as they were."""
    load = keras.Model.load_weights

    def passes_over(model, *args, **kwargs):
        kept = numpy(model.get_layer("head").kernel)
        load(model, *args, **kwargs)
        model.get_layer("head").kernel.assign(kept)

    monkeypatch.setattr(keras.Model, "load_weights", passes_over)
    with pytest.raises(WeightFileError, match=r"fit variant 'mnist10_w16': it has no values for .*head/kernel"):
        kh.load("mnist10_w16.tvdn")


@pytest.mark.parametrize("shape", [(14, 56, 1), (14, 14, 4)])
def test_weights_of_pixels_are_not_those_of_other_pixels(shape):
    with pytest.raises(ValueError, match=r"each weight behind it is of one of \(28, 28, 1\). Use the input shape"):
        kh.load("highway_fc50_tanh.tvdn", input_shape=shape)
    assert kh.load("highway_fc50_tanh.tvdn", input_shape=(28, 28, 1)).input_shape == (None, 28, 28, 1)


@pytest.mark.parametrize(("variant", "shape"), [("highway_fc10", (20, 20, 1)), ("mnist10_w16", (32, 32, 1))])
def test_files_that_do_not_say_of_which_pixels_they_are(variant, shape, tmp_path):
    """Of Keras's own, which fit what is requested."""
    model = kh.create_model(variant, weights=None, input_shape=shape)
    model.save_weights(tmp_path / "own.weights.h5")
    with pytest.warns(kh.UncheckedWeights):
        again = kh.create_model(variant, weights=str(tmp_path / "own.weights.h5"), input_shape=shape)
    for ours, theirs in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_fields_that_change_no_function_are_no_obstacle():
    """Smaller images than a row's least, and how weights would have started."""
    small = kh.load("highway20.blog", input_shape=(24, 24, 3), min_size=24)
    assert small.predict(RNG.random((1, 24, 24, 3)), verbose=0).shape == (1, 10)
    x = RNG.random((2, 28, 28, 1))
    loaded = [kh.load("mnist10_w16.tvdn", **fields) for fields in ({}, {"stem_init_std": 0.1})]
    np.testing.assert_array_equal(*(model.predict(x, verbose=0) for model in loaded))


# --- Images that are not the network's ----------------------------------------


def _two_images():
    a, b = keras.Input((64, 64, 1)), keras.Input((64, 64, 2))
    return keras.layers.Concatenate()([a, b])


@pytest.mark.parametrize(
    "images",
    [
        lambda: keras.layers.Resizing(64, 64)(keras.Input((None, None, 3))),
        lambda: keras.layers.CenterCrop(224, 224)(keras.Input((256, 256, 3))),
        lambda: keras.layers.Reshape((64, 64, 3))(keras.Input((64 * 64 * 3,))),
        _two_images,
        lambda: keras.Input((64, 64, 3)),
    ],
)
def test_strides_are_of_the_pixels_that_the_network_sees(images):
    pyramid = kh.features(kh.create_model("resnet50", input_tensor=images(), **SMALL))
    assert [level.stride for level in pyramid.info] == [4, 8, 16, 32]
    assert [level.channels for level in pyramid.info] == [16] * 4


def test_stages_are_any_names():
    model = kh.create_model("resnet50", **SMALL)
    stages = {"stage1": 0, "stage3": 1}
    assert [level.stage for level in kh.features(model, stages=stages.keys()).info] == ["stage1", "stage3"]


@pytest.mark.parametrize("stages", [(), 3, {}])
def test_features_of_no_stages_are_refused(stages):
    with pytest.raises(ValueError, match=r"`stages` must be the name of a stage, several names.*Received: stages="):
        kh.features(kh.create_model("resnet50", **SMALL), stages=stages)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"input_shape": (10, 10, 1), "input_tensor": (50, 60, 3)}, "`input_shape` must be that of `input_tensor`"),
        ({"input_shape": 5}, "`input_shape` must have three numbers"),
        ({"input_shape": (5, 5)}, "`input_shape` must have three numbers"),
        ({"include_preprocessing": 3}, "`include_preprocessing` must be True, False, a Transform or a name"),
    ],
)
def test_images_to_preprocess_are_checked_like_others(arguments, message):
    if "input_tensor" in arguments:
        arguments = {**arguments, "input_tensor": keras.Input(arguments["input_tensor"])}
    with pytest.raises(ValueError, match=message):
        kh.create_model("highway20", weights=None, **{"include_preprocessing": "cifar10", **arguments})


def test_preprocessing_announces_what_it_gives():
    layer = layers.Preprocessing(kh.get_transform("mnist"), dtype="float16")
    announced, given = layer(keras.Input((28, 28, 1))), layer(np.zeros((1, 28, 28, 1)))
    assert announced.dtype == keras.backend.standardize_dtype(given.dtype) == "float32"


# --- Layers -------------------------------------------------------------------


def test_a_branch_ends_in_its_activation_in_training_too():
    """In training on TensorFlow's CPU a softmax went over 13 channels of padding besides."""
    branch, x = layers.Branch((3,), (1,), activation="softmax"), RNG.random((2, 4, 4, 3), "float32")
    for training in (True, False):
        np.testing.assert_allclose(numpy(branch(x, training=training)).sum(-1), 1.0, rtol=1e-5)


def test_a_seed_draws_what_it_did():
    """Numbers of 0.1.0: of a seed come a recipe's weights, and paired differences between runs of one seed."""
    keras.utils.set_random_seed(0)
    model = kh.create_model("highway20", weights=None, blocks=(1, 1, 1))
    block = model.get_layer("stage2_block1")
    sums = [float(np.abs(numpy(part.conv1.kernel)).sum()) for part in (block.transform, block.transform_gate)]
    sums.append(float(np.abs(numpy(block.projection.conv1.kernel)).sum()))
    expected = {"tensorflow": [245.736, 245.433, 84.368]}.get(keras.backend.backend())
    if expected is None:
        pytest.skip("draws differ by backend")
    np.testing.assert_allclose(sums, expected, rtol=1e-5)


def test_a_block_that_refused_an_input_takes_a_right_one():
    block = layers.BasicBlock(4, projection="A")
    with pytest.raises(ValueError, match="option A pads a known number of channels and cannot remove any"):
        block(np.zeros((1, 8, 8, 8)))
    assert block(np.zeros((1, 8, 8, 4))).shape == (1, 8, 8, 4)
    fresh = layers.BasicBlock(4, projection="A")
    fresh.build((None, 8, 8, 4))
    assert [w.path.split("/", 1)[1] for w in block.weights] == [w.path.split("/", 1)[1] for w in fresh.weights]


@pytest.mark.parametrize("size", [0, (3, 0), "3", (3, 3, 3), 2.5])
@pytest.mark.parametrize("name", ["kernel_size", "gate_kernel_size"])
def test_kernel_sizes_are_checked_where_they_are_given(name, size):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer.*Received: {name}="):
        layers.HighwayConv2D(**{name: size})


def test_a_tied_gate_of_another_width_is_refused_in_the_graph():
    with pytest.raises(ValueError, match=r"that broadcast to its output. Received: logits of shape \(None, 3\)"):
        layers.HighwayDense(gate="tied")(keras.Input((4,)), gate=keras.Input((3,)))
    assert layers.HighwayDense(gate="tied")(keras.Input((4,)), gate=keras.Input((1,))).shape == (None, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layers.Preprocessing(kh.get_transform("cifar10"))(np.zeros((40, 40, 3))), "needs an input of rank 4"),
        (lambda: layers.Branch((4,), (3,), (2,))(np.zeros((2, 8))), "needs an input of rank 4"),
        (lambda: layers.HighwayDense(stochastic_depth=None), r"`stochastic_depth` must be in \[0, 1\)"),
        (lambda: layers.HighwayDense(stochastic_depth="0.1"), r"`stochastic_depth` must be in \[0, 1\)"),
        (lambda: layers.HighwayDense(stochastic_depth=b"0.1"), r"`stochastic_depth` must be in \[0, 1\)"),
        (lambda: layers.HighwayDense(stochastic_depth=10**400), r"`stochastic_depth` must be in \[0, 1\)"),
        (lambda: kh.merge_lora("x"), "Received: 'x' of type str"),
        (
            lambda: kh.create_model("resnet20", gating="plain", stochastic_depth=0.5, weights=None),
            "which gating='plain' does not have. Received: gating='plain', stochastic_depth=0.5",
        ),
    ],
)
def test_what_was_wrong_is_said(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_state_that_is_not_there_yet_is_reset():
    layers.CarriedLSTM(3, 2).reset_state()


def test_numbers_of_numpy_are_numbers():
    fields = {
        "remat": np.bool_(True),
        "gate_bias": np.float32(-1),
        "stochastic_depth": np.float64(0.25),
        "gate": "low_rank",
        "gate_rank": np.int64(2),
        "widths": tuple(np.array([4, 4, 4])),
    }
    model = kh.create_model("highway20", weights=None, **fields)
    block = model.get_layer("stage3_block3")
    assert (block.remat, block.gate_bias, block.stochastic_depth, block.gate_rank) == (True, -1.0, 0.25, 2)
    with pytest.raises(ValueError, match="`gate_rank` must be of type int"):
        kh.create_model("highway20", weights=None, gate="low_rank", gate_rank=np.timedelta64(2))
