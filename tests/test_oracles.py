"""Our ResNets and CIFAR 110-layer nets against timm's and a small PyTorch version.

`oracles/make_goldens.py` ran those once, with the weights and BN statistics
of `oracles/seeded_state.py`, and stored their logits. No PyTorch here.
"""

from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops
from oracles.seeded_state import seeded_images, seeded_state

from keras_highway.models.builder import build
from keras_highway.specs import override
from keras_highway.variants import VARIANTS
from keras_highway.weights.torch_names import assign_torch_state, torch_state

ORACLES = Path(__file__).parent / "oracles"
NETS = {
    "resnet50": (64, 97),
    "resnet101": (64, 97),
    "resnet152": (64, 97),
    "resnet110": (32, 39),
    "highway110": (32, 39),
    "highway111": (32, 39),
}


class Net:
    """One of our networks before and after it got the seeded state, and the oracle's golden file."""

    def __init__(self, name):
        self.sizes = NETS[name]
        with np.load(ORACLES / "goldens" / f"{name}.npz") as file:
            self.golden = dict(file)
        self.model = build(VARIANTS[name], input_shape=(None, None, 3), classifier_activation=None)
        self.initial = torch_state(self.model)
        self.state = seeded_state(self.golden_shapes().items())
        assign_torch_state(self.model, self.state)

    def golden_shapes(self):
        """Names and shapes of the oracle's state dict."""
        rows = (line.split() for line in str(self.golden["state"]).splitlines())
        return {name: tuple(map(int, shape.split("x"))) for name, shape in rows}


@pytest.fixture(scope="module", params=NETS)
def net(request):
    return Net(request.param)


def test_logits_are_the_oracles(net):
    for size in net.sizes:
        golden = net.golden[f"logits_{size}"]
        # A comparison of zeros, or of logits that do not see the image, would prove nothing.
        assert golden.std() > 0.1
        assert golden.std(axis=0).mean() > 0.03
        logits = net.model(seeded_images(len(golden), size), training=False)
        np.testing.assert_allclose(ops.convert_to_numpy(logits), golden, rtol=0, atol=1e-4)


def test_names_and_shapes_are_the_oracles(net):
    assert {name: array.shape for name, array in net.initial.items()} == net.golden_shapes()


def test_state_comes_back_as_it_was_set(net):
    back = torch_state(net.model)
    assert back.keys() == net.state.keys()
    for name, array in net.state.items():
        np.testing.assert_array_equal(back[name], array, err_msg=name)


def test_constants_of_batch_normalization_are_the_oracles(net):
    norms = [x for x in net.model._flatten_layers() if isinstance(x, keras.layers.BatchNormalization)]
    assert len(norms) == sum(name.endswith("running_var") for name in net.state)
    epsilon, momentum = net.golden["bn"]  # PyTorch's momentum is the weight of the new
    for norm in norms:
        assert (norm.epsilon, norm.momentum) == (epsilon, pytest.approx(1 - momentum))


def test_kernels_start_with_the_oracles_variance(net):
    """He's initialization, by fan-out for the ImageNet nets and by fan-in for CIFAR's."""
    kernels = [array for array in net.initial.values() if array.ndim == 4]
    for key, one_fan in (("init_fan_in", lambda k: k[0].size), ("init_fan_out", lambda k: k[:, 0].size)):
        variance = np.concatenate([np.ravel(k) * one_fan(k) ** 0.5 for k in kernels]).var()
        np.testing.assert_allclose(variance, net.golden[key], rtol=0.01)


@pytest.fixture
def small():
    spec = override(VARIANTS["highway110"], blocks=(1, 1, 1))
    return build(spec, input_shape=(None, None, 3), classifier_activation=None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("layer2.0.gatebn2.bias"), r"1 missing: layer2\.0\.gatebn2\.bias$"),
        (
            lambda s: s.update({"layer1.0.conv2.weight": np.ones((14, 14, 1, 3))}),
            r"1 mismatched: layer1\.0\.conv2\.weight \(14, 14, 1, 3\) instead of \(14, 14, 3, 3\)$",
        ),
        (
            lambda s: s.update({"linear.weight": s["linear.weight"].T}),
            r"linear\.weight \(56, 10\) instead of \(10, 56\)$",
        ),
    ],
    ids=["missing", "shape", "transposed"],
)
def test_a_state_that_does_not_fit_is_refused_whole(small, change, message):
    before = torch_state(small)
    state = {name: array + 1 for name, array in before.items()}
    change(state)
    with pytest.raises(ValueError, match=message):
        assign_torch_state(small, state)
    for name, array in torch_state(small).items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)


def test_batch_counters_are_ignored(small):
    state = {name: array + 1 for name, array in torch_state(small).items()}
    assign_torch_state(small, {**state, "layer1.0.bn1.num_batches_tracked": np.array(7)})
    for name, array in torch_state(small).items():
        np.testing.assert_array_equal(array, state[name], err_msg=name)


@pytest.mark.parametrize(
    ("variant", "changes", "where"),
    [("highway110", {"gating": "full"}, "stage1_block1/carry_gate"), ("highway_fc10", {}, "highway_fc10")],
)
def test_a_network_without_pytorch_names_is_an_error(variant, changes, where):
    if "blocks" not in changes and variant == "highway110":
        changes = {**changes, "blocks": (1, 1, 1)}
    model = build(override(VARIANTS[variant], **changes))
    with pytest.raises(ValueError, match=where):
        torch_state(model)
