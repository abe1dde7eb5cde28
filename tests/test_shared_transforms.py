"""Transforms whose kernels all blocks of a stage share, with batch normalization of their own."""

import keras
import numpy as np
from contracts import check_round_trip
from miniatures import MINIATURES, batch, miniature, numpy

from keras_highway.analysis import lesion, rewire, trace
from keras_highway.analysis.cost import cost
from keras_highway.export import fold_batch_norm
from keras_highway.layers import BasicBlock, BottleneckBlock, SharedKernels
from keras_highway.models.builder import build
from keras_highway.specs import override

SMALL = {"blocks": (4,), "widths": (4,), "shared_transforms": True}  # no transition: all four share
KERNELS, NORMS = 2 * 9 * 4 * 4, 2 * 2 * 4  # of a basic block of 4 channels


def small(**changes):
    return miniature("conv_net", **{**SMALL, **changes})


def sharing(model):
    return [layer.name for layer in model.layers if getattr(layer, "shared_transform", False)]


def test_parameters_by_hand():
    own, shared = (build(override(MINIATURES["conv_net"], **{**SMALL, "shared_transforms": s})) for s in (False, True))
    ends = 9 * 3 * 4 + 2 * 4 + 4 * 10 + 10
    assert cost(own).total.parameters == ends + 4 * 2 * (KERNELS + NORMS)  # a transform and a gate each
    assert cost(shared).total.parameters == ends + 4 * (KERNELS + NORMS) + KERNELS + 4 * NORMS
    assert cost(shared).total[2:] == cost(own).total[2:]  # as many multiply-adds and activations
    assert cost(shared).total.parameters == sum(int(np.prod(w.shape)) for w in shared.trainable_weights)


def test_layer_names_and_which_blocks_share():
    """A weight file depends on the names. Transitions have kernels of their own."""
    for family in ("conv_net", "bottleneck"):
        model = build(override(MINIATURES[family], shared_transforms=True))
        first = ["stage1_block1"] if family == "conv_net" else []  # stem 4, widths 4 and 6; or 4 to 8 channels
        assert sharing(model) == [*first, "stage1_block2", "stage1_block3", "stage2_block2"]
        assert [layer.name for layer in model.layers if isinstance(layer, SharedKernels)] == [
            "stage1_transform",
            "stage2_transform",
        ]
        blocks = [layer for layer in model.layers if isinstance(layer, (BasicBlock, BottleneckBlock))]
        assert all(block.is_transition != block.shared_transform for block in blocks)
    paths = [w.path for w in build(override(MINIATURES["conv_net"], **SMALL)).trainable_weights]
    assert "stage1_transform/kernel1" in paths and "stage1_transform/kernel2" in paths
    own = [path for path in paths if path.startswith("stage1_block2/transform/")]
    assert own == [f"stage1_block2/transform/bn{i}/{w}" for i in (1, 2) for w in ("gamma", "beta")]


def test_the_same_as_blocks_with_equal_kernels():
    """An independent form: kernels of their own, set equal."""
    model = small()
    separate = miniature("conv_net", **{**SMALL, "shared_transforms": False})
    kernels = model.get_layer("stage1_transform").kernels
    for layer in model.layers:
        other = separate.get_layer(layer.name) if "block" in layer.name else None
        if other is None:
            if layer.name in ("stem", "head"):
                separate.get_layer(layer.name).set_weights(layer.get_weights())
            continue
        other.transform_gate.set_weights(layer.transform_gate.get_weights())
        for i in (1, 2):
            getattr(other.transform, f"bn{i}").set_weights(getattr(layer.transform, f"bn{i}").get_weights())
            getattr(other.transform, f"conv{i}").kernel.assign(kernels[i - 1])
    x = batch(model, 3)
    np.testing.assert_allclose(numpy(model(x)), numpy(separate(x)), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(numpy(model(x, training=True)), numpy(separate(x, training=True)), rtol=1e-4, atol=1e-4)
    folded = fold_batch_norm(model, override(MINIATURES["conv_net"], **SMALL))
    np.testing.assert_allclose(numpy(folded(x)), numpy(model(x)), rtol=1e-3, atol=1e-3)


def test_every_block_reaches_the_kernels():
    model = small()
    kernels = model.get_layer("stage1_transform").kernels
    x, y = batch(model), np.array([0, 1])
    for name in sharing(model):
        alone = rewire(model, {other: None for other in sharing(model) if other != name})
        before = [numpy(w) for w in kernels]
        alone.compile(keras.optimizers.SGD(1e-3), keras.losses.SparseCategoricalCrossentropy(True), run_eagerly=True)
        alone.train_on_batch(x, y)
        assert all((numpy(w) != old).any() for w, old in zip(kernels, before, strict=True)), name


def test_trace_and_rewire():
    model = small(gate="same", blocks=(3,))
    x = batch(model)
    signals = trace(model, x)
    np.testing.assert_array_equal(signals.output, numpy(model(x, training=False)))
    block, kernels = model.get_layer("stage1_block2"), model.get_layer("stage1_transform").kernels
    at = signals["stage1_block1"].y
    np.testing.assert_array_equal(numpy(block.transform(at, kernels=kernels)), signals["stage1_block2"].h)
    lesioned = rewire(model, lesion("stage1_block2"))
    np.testing.assert_array_equal(trace(lesioned, x)["stage1_block3"].x, at)
    plan = {"stage1_block2": "stage1_block3", "stage1_block3": "stage1_block2"}
    swapped = rewire(model, plan)
    assert (numpy(swapped(x)) != signals.output).any()
    np.testing.assert_array_equal(numpy(rewire(swapped, plan)(x)), signals.output)


def test_copies_and_files_share_too(tmp_path):
    model = small(blocks=(2,))
    x = batch(model)
    check_round_trip(model, [x])
    for copy in (keras.models.clone_model(model), keras.Model.from_config(model.get_config())):
        assert copy.count_params() == model.count_params()
        copy.set_weights(model.get_weights())
        np.testing.assert_array_equal(numpy(copy(x)), numpy(model(x)))
    model.save_weights(tmp_path / "model.weights.h5")
    again = build(override(MINIATURES["conv_net"], **{**SMALL, "blocks": (2,)}), classifier_activation=None)
    again.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(numpy(again(x)), numpy(model(x)))
