"""`remat=True`: the same outputs, gradients, weights and moving averages, from less memory."""

import math

import keras
import numpy as np
import pytest
from contracts import to_numpy
from gradients import value_and_gradients
from miniatures import batch, miniature

import keras_highway as kh
from keras_highway.training.recipe import with_settings
from keras_highway.training.recipes import RECIPES

# In whole lanes of channels: TensorFlow 2.21's convolutions on a CPU write past their memory for some others.
FAMILIES = {
    "conv_net": {"blocks": (1, 1), "widths": (16, 32), "stem_width": 16, "input_shape": (8, 8, 3), "min_size": 8},
    "bottleneck": {"blocks": (1, 1), "widths": (16, 16), "stem_width": 16},
    "conv_stack": {},
    "dense_stack": {},
}
SLOW = pytest.mark.slow


def plain_and_remat(family, **changes):
    """A net without and one with rematerialization, of the same weights and seeds."""
    nets = []
    for remat in (False, True):
        keras.utils.set_random_seed(3)
        nets.append(miniature(family, remat=remat, **FAMILIES[family], **changes))
    return nets


def kept_bytes(net, batch):
    """Bytes that `jax.vjp` keeps between the passes of a training step, weights included: counted, nothing runs.

    On a CPU XLA's own `memory_analysis()` shows no difference: XLA merges the second computation with the first.
    """
    import jax

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    state = [v.value for v in net.non_trainable_variables]

    def kept(trainable, images, labels):
        def objective(trainable):
            outputs = net.stateless_call(trainable, state, images, training=True)
            return loss(labels, outputs[0]), outputs[1]

        return jax.vjp(objective, trainable, has_aux=True)[1]

    trainable = [jax.ShapeDtypeStruct(tuple(v.shape), v.dtype) for v in net.trainable_variables]
    images = jax.ShapeDtypeStruct((batch, *net.input_shape[1:]), "float32")
    leaves = jax.tree.leaves(jax.eval_shape(kept, trainable, images, jax.ShapeDtypeStruct((batch,), "int32")))
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def loss_of(model, x):
    return lambda: keras.ops.mean(keras.ops.square(model(x, training=True)))


@pytest.mark.parametrize("family", ["conv_net", *[pytest.param(f, marks=SLOW) for f in FAMILIES if f != "conv_net"]])
def test_outputs_and_gradients_are_equal(family):
    exact = keras.backend.backend() != "jax"  # which has no float64 here
    plain, remat = plain_and_remat(family, dtype="float64" if exact else "float32")
    assert all(block.remat for block in remat.layers if isinstance(block, kh.layers.GatedBlock))
    x = batch(plain, 2)
    keras.utils.set_random_seed(1)  # PyTorch's dropout knows no other seed
    value, gradients = value_and_gradients(loss_of(plain, x), plain)
    keras.utils.set_random_seed(1)
    again, others = value_and_gradients(loss_of(remat, x), remat)
    assert value == pytest.approx(again, rel=1e-12 if exact else 1e-5)
    for a, b in zip(gradients, others, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=(1e-10 if exact else 2e-3) * np.abs(a).max())


FORMS = {
    "dropped": ("conv_net", {"stochastic_depth": 0.5}),
    "tied": ("conv_net", {"gate": "tied", "gating": "full"}),
    "mixed": ("bottleneck", {"dtype": "mixed_bfloat16"}),
}


@pytest.mark.parametrize("form", ["dropped", *[pytest.param(f, marks=SLOW) for f in FORMS if f != "dropped"]])
def test_a_step_of_fit_leaves_the_same_weights_averages_and_seeds(form):
    """Moving averages move once though the block runs twice, and its second run drops what the first did."""
    family, changes = FORMS[form]
    nets = plain_and_remat(family, **changes)
    x = batch(nets[0], 4)
    labels = np.arange(4) % nets[0].output_shape[-1]
    for net in nets:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        net.compile(keras.optimizers.SGD(0.1), loss)
        keras.utils.set_random_seed(1)
        net.fit(x, labels, batch_size=4, epochs=2, shuffle=False, verbose=0)
    rtol, atol = (0.1, 0.02) if form == "mixed" else (1e-3, 1e-4)
    assert any("moving" in v.name and np.any(to_numpy(v) != 0) for v in nets[0].variables)
    for a, b in zip(nets[0].variables, nets[1].variables, strict=True):
        np.testing.assert_allclose(to_numpy(a), to_numpy(b), rtol=rtol, atol=atol, err_msg=a.path)


@pytest.mark.more
def test_it_changes_no_name_weight_or_file(tmp_path):
    net, remat = plain_and_remat("conv_net")
    assert [layer.name for layer in net.layers[1:]] == [layer.name for layer in remat.layers[1:]]
    assert [w.path for w in net.weights] == [w.path for w in remat.weights]
    remat.save(tmp_path / "net.keras")
    again = keras.saving.load_model(tmp_path / "net.keras")
    assert again.get_layer("stage1_block1").remat
    x = batch(net)
    np.testing.assert_array_equal(to_numpy(again(x)), to_numpy(net(x)))

    own = kh.create_model("mnist10_w16", remat=True)
    kh.save(own, tmp_path / "own", transform="mnist")
    assert kh.describe_weights(tmp_path / "own").overrides == {}
    assert not kh.load(tmp_path / "own").get_layer("stage1_block1").remat
    assert kh.load(tmp_path / "own", remat=True).get_layer("stage1_block1").remat


def test_builders_and_recipes_take_it():
    net = kh.create_model("highway50", input_shape=(32, 32, 3), remat=True, blocks=(1, 1), widths=(4, 4), classes=2)
    assert all(layer.remat for layer in net.layers if isinstance(layer, kh.layers.GatedBlock))
    recipe = with_settings(RECIPES["highway50"], ["net.remat=true"])
    assert dict(recipe.overrides)["remat"] is True
    with pytest.raises(ValueError, match="scanned=False"):
        kh.create_model("highway_fc1000", remat=True)


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="counted on JAX alone, from the shapes of a gradient")
def test_only_the_inputs_of_blocks_are_kept():
    """For 20 blocks of 30 units and 1000 images: inputs, weights, and little else."""
    plain, remat = (
        kept_bytes(miniature("dense_stack", depth=21, units=30, remat=remat), 1000) for remat in (False, True)
    )
    inputs, weights = 20 * 1000 * 30 * 4, 20 * 2 * (30 * 30 + 30) * 4
    around = (
        1000 * (28 * 28 + 3 * 30 + 4 * 10) * 4 + 4 * (28 * 28 + 30 + 10) * 30
    )  # stem and head, each kept once at most
    assert inputs + weights <= remat <= inputs + weights + 2 * around
    assert plain > 3 * inputs
