"""Optimizers, schedules and losses against their equations."""

import dataclasses

import keras
import numpy as np
import pytest

import keras_highway as kh
from keras_highway import create_model
from keras_highway.training.optimizers import (
    CaffeSGD,
    ConvMuon,
    DecayedLamb,
    make_optimizer,
    make_schedule,
)
from keras_highway.training.program import make_loss
from keras_highway.training.recipe import changed
from keras_highway.training.recipes import RECIPES
from tests.miniatures import numpy

BASE = RECIPES["mnist10_w16"]


def tensor(value):
    return keras.ops.convert_to_tensor(value, "float32")


@pytest.mark.parametrize("on_vectors", [False, True])
@pytest.mark.parametrize("nesterov", [False, True])
def test_paper_sgd_against_its_equations(nesterov, on_vectors):
    kernel, bias = keras.Variable([[1.0, -2.0]], name="kernel"), keras.Variable([0.5, 0.5], name="bias")
    optimizer = CaffeSGD(
        0.1,
        momentum=0.9,
        nesterov=nesterov,
        l2=0.01,
        bias_multiplier=2.0,
        l2_on_vectors=on_vectors,
        decay_multipliers=[("kern*", 10.0)],
    )
    optimizer.build([kernel, bias])
    w, b, vw, vb = np.array([[1.0, -2.0]]), np.array([0.5, 0.5]), 0.0, 0.0
    for step in range(3):
        gw, gb = np.array([[0.3, 0.1]]) * (step + 1), np.array([-0.2, 0.4])
        optimizer.apply([tensor(gw), tensor(gb)])
        gw, gb = gw + 10 * 0.01 * w, 2.0 * (gb + (0.01 * b if on_vectors else 0.0))
        vw, vb = 0.9 * vw - 0.1 * gw, 0.9 * vb - 0.1 * gb
        w, b = (w + 0.9 * vw - 0.1 * gw, b + 0.9 * vb - 0.1 * gb) if nesterov else (w + vw, b + vb)
    np.testing.assert_allclose(np.asarray(kernel), w, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(bias), b, rtol=1e-5)
    again = CaffeSGD.from_config(optimizer.get_config())
    assert again.get_config() == optimizer.get_config()


def test_adamw_decays_kernels_alone():
    recipe = dataclasses.replace(BASE, optimizer="adamw", bias_multiplier=1.0, weight_decay=0.5, learning_rate=0.1)
    optimizer = make_optimizer(recipe, 0.1)
    variables = {name: keras.Variable([2.0], name=name) for name in ("kernel", "bias", "gamma", "beta")}
    optimizer.build(list(variables.values()))
    optimizer.apply([tensor([0.0])] * 4)
    moved = {name: float(np.asarray(v)[0]) for name, v in variables.items()}
    assert moved == pytest.approx({"kernel": 1.9, "bias": 2.0, "gamma": 2.0, "beta": 2.0})


def test_adamw_forgets_squared_gradients_as_the_recipe_states():
    """Two steps by hand: gradients 1 and 0, so that the second moves by the first's momentum alone."""
    recipe = dataclasses.replace(BASE, optimizer="adamw", bias_multiplier=1.0, beta_2=0.9, weight_decay=0.0)
    optimizer, kernel = make_optimizer(recipe, 0.1), keras.Variable([2.0], name="kernel")
    optimizer.build([kernel])
    for gradient in (1.0, 0.0):
        optimizer.apply([tensor([gradient])])
    mean, square = 0.09 / (1 - 0.9**2), 0.09 / (1 - 0.9**2)
    assert float(np.asarray(kernel)[0]) == pytest.approx(2.0 - 0.1 - 0.1 * mean / square**0.5, rel=1e-5)
    with pytest.raises(ValueError, match=r"`beta_2` needs optimizer='adamw'.*beta_2=0\.9"):
        dataclasses.replace(recipe, optimizer="sgd").check()
    with pytest.raises(ValueError, match=r"beta_2=1\.0"):
        dataclasses.replace(recipe, beta_2=1.0).check()


def newton_schulz(x, steps=5):
    """Muon's iteration as its authors write it, in float64."""
    x = x / np.linalg.norm(x)
    for _ in range(steps):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x


@pytest.mark.parametrize("shape", [(3, 3, 8, 16), (1, 1, 40, 10), (12, 7), (3, 3, 2, 30)])
def test_muon_updates_a_kernel_by_its_orthogonalized_momentum(shape):
    draw = np.random.default_rng(0)
    start = draw.normal(size=shape).astype("float32")
    kernel = keras.Variable(start, name="kernel")
    optimizer = ConvMuon(0.1, weight_decay=0.5, momentum=0.9)
    optimizer.build([kernel])
    w, m = start.reshape(-1, shape[-1]), 0.0
    for step in range(2):
        # Singular values of 1 to 1e-3: real gradients differ as much.
        left, _, right = np.linalg.svd(draw.normal(size=w.shape), full_matrices=False)
        g = (left * np.geomspace(1, 1e-3, left.shape[1])) @ right
        optimizer.apply([tensor(g.reshape(shape))])
        m = 0.9 * m + g
        w = w - 0.1 * (newton_schulz(g + 0.9 * m) + 0.5 * w)
        np.testing.assert_allclose(numpy(kernel).reshape(w.shape), w, atol=1e-4, err_msg=str(step))


def test_muon_leaves_stem_head_and_biases_to_adamw():
    recipe = dataclasses.replace(RECIPES["cifar10_19layer_fast"], variant="highway_a")
    net = create_model("highway_a", weights=None)
    optimizer = make_optimizer(recipe, 0.03)
    optimizer.build(net.trainable_variables)
    by_adamw = {
        v.path
        for v, second in zip(net.trainable_variables, optimizer.adam_velocities, strict=True)
        if second is not None
    }
    kernels = {v.path for v in net.trainable_variables if v.name == "kernel"}
    assert kernels & by_adamw == {"stem/kernel", "head/kernel"}
    assert {v.path for v in net.trainable_variables} - kernels <= by_adamw
    before, adamw = numpy(net.get_layer("head").kernel), keras.optimizers.AdamW(0.002, weight_decay=0.0)
    twin = keras.Variable(before)
    adamw.build([twin])
    gradients = [keras.random.normal(v.shape, seed=i) for i, v in enumerate(net.trainable_variables)]
    optimizer.apply(gradients)
    adamw.apply([gradients[[v.path for v in net.trainable_variables].index("head/kernel")]])
    np.testing.assert_allclose(numpy(net.get_layer("head").kernel), numpy(twin), atol=1e-7)
    assert ConvMuon.from_config(optimizer.get_config()).get_config() == optimizer.get_config()


def rates(recipe, steps_per_epoch, at):
    schedule = make_schedule(recipe, steps_per_epoch)
    return [float(schedule(step)) for step in at]


def test_step_schedule_changes_exactly_at_its_epochs():
    recipe = dataclasses.replace(BASE, epochs=300, learning_rate=0.01, milestones=(1 / 3, 2 / 3))
    actual = rates(recipe, 600, (0, 59_999, 60_000, 119_999, 120_000, 179_999))  # the published steps
    np.testing.assert_allclose(actual, [0.01, 0.01, 0.001, 0.001, 0.0001, 0.0001], rtol=1e-5)


def test_the_last_layer_of_the_authors_nets_decays_ten_times_as_much():
    """[caffe]: `decay_mult: 10`, on its weights alone."""
    optimizer = make_optimizer(RECIPES["cifar10_19layer"], 0.1)
    net = create_model("cifar10_19layer", weights=None)
    optimizer.build(net.trainable_variables)
    before = {v.path: numpy(v) for v in net.trainable_variables}
    optimizer.apply([keras.ops.zeros(v.shape) for v in net.trainable_variables])
    for v in net.trainable_variables:
        decay = {"head/kernel": 1e-2}.get(v.path, 1e-3) if v.name == "kernel" else 0.0
        expected = before[v.path] * (1 - 1.9 * 0.1 * decay)  # a first step of Nesterov's 0.9
        np.testing.assert_allclose(numpy(v), expected, rtol=1e-5, err_msg=v.path)


def test_one_cycle_is_two_lines():
    recipe = dataclasses.replace(
        BASE, schedule="one_cycle", epochs=10, learning_rate=1.0, warmup_epochs=2, warmup_rate=0.2, final_rate=0.1
    )
    actual = rates(recipe, 10, (0, 10, 19, 20, 60, 100))
    np.testing.assert_allclose(actual, [0.2, 0.6, 0.96, 1.0, 0.55, 0.1], rtol=1e-5)
    assert rates(dataclasses.replace(recipe, warmup_epochs=0), 10, (0, 50))[0] == 1.0


def test_exponential_decay_falls_by_epoch():
    recipe = dataclasses.replace(BASE, schedule="exponential", learning_rate=1.0, decay=0.5)
    assert rates(recipe, 10, (0, 9, 10, 20)) == [1.0, 1.0, 0.5, 0.25]
    schedule = make_schedule(recipe, 41)
    for step in (40, 41, 81, 82):  # 41 * (1 / 41) is less than 1 in float32, as XLA has it
        assert float(compiled(schedule)(step)) == float(schedule(step)) == 0.5 ** (step // 41), step


def compiled(schedule):
    """A schedule in a program of the backend's compiler."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.jit(schedule)
    if backend == "tensorflow":
        import tensorflow as tf

        program = tf.function(schedule, jit_compile=True)
        return lambda step: program(tf.constant(step))
    return schedule


LOGITS = np.array([[2.0, -1.0, 0.5], [0.1, 0.2, 0.3]], "float32")
LABELS = np.array([0, 2], "int32")


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_against_its_equation(smoothing):
    loss = make_loss(dataclasses.replace(BASE, label_smoothing=smoothing), 3)
    targets = (1 - smoothing) * np.eye(3)[LABELS] + smoothing / 3
    log_p = LOGITS - np.log(np.exp(LOGITS).sum(1, keepdims=True))
    actual = np.asarray(loss(keras.ops.convert_to_tensor(LABELS), LOGITS))
    np.testing.assert_allclose(actual, -(targets * log_p).sum(1), rtol=1e-5)


def test_a_pattern_that_matches_nothing_is_an_error():
    optimizer = CaffeSGD(0.1, decay_multipliers=[("haed/kernel", 10.0)])
    with pytest.raises(ValueError, match=r"matches no variable.*'haed/kernel'"):
        optimizer.build([keras.Variable([1.0], name="kernel")])


def test_decay_is_of_kernels():
    net = kh.create_model("highway20", gate="channel", blocks=(1, 1, 1), widths=(4, 4, 8), stem_width=4)
    recipe = changed(RECIPES["resnet50_imagenette"], weight_decay=0.5)
    adamw = make_optimizer(recipe, 0.1)
    adamw.build(net.trainable_variables)
    decayed = {v.name for v in net.trainable_variables if adamw._use_weight_decay(v)}
    assert decayed == {"kernel"}
    stack = kh.create_model("highway_fc10", scanned=True, depth=4, units=5)
    lamb = DecayedLamb(0.0, decay=0.5)
    lamb.build(stack.trainable_variables)
    before = {v.path: np.array(v) for v in stack.trainable_variables}
    lamb.learning_rate = 1.0
    lamb.apply([keras.ops.zeros(v.shape) for v in stack.trainable_variables])
    moved = {v.path for v in stack.trainable_variables if (np.array(v) != before[v.path]).any()}
    assert moved == {v.path for v in stack.trainable_variables if "kernel" in v.path}


@pytest.mark.parametrize("threshold", [0.005, 0.91])
def test_a_threshold_that_makes_all_targets_equal_is_refused(threshold):
    """Smoothed by 0.1 the targets of ten classes are 0.01 to 0.91."""
    recipe = changed(RECIPES["highway50_a2"], label_smoothing=0.1, target_threshold=threshold)
    with pytest.raises(ValueError, match=r"`target_threshold` .* 0.01 and 0.91"):
        make_loss(recipe, 10)
    assert make_loss(changed(recipe, target_threshold=0.01), 10)
