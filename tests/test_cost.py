"""Costs against published figures and against counts made by hand."""

import keras
import numpy as np
import pytest

from keras_highway.analysis import StageCost, cost, rewire
from keras_highway.models.builder import build
from keras_highway.specs import override
from keras_highway.variants import VARIANTS


def test_resnet50_and_highway50_at_224():
    resnet, highway = (cost(build(VARIANTS[name])) for name in ("resnet50", "highway50"))
    assert [row.stage for row in highway] == ["stem", "stage1", "stage2", "stage3", "stage4", "head"]
    assert resnet.total.multiply_adds == pytest.approx(4.09e9, rel=1e-3)  # torchvision's table; timm: 4.1 G
    assert resnet.total.activations == pytest.approx(11.1e6, rel=2e-3)  # timm's benchmark table
    assert highway.total.multiply_adds / resnet.total.multiply_adds == pytest.approx(1.075, abs=5e-4)
    assert highway.total.activations / resnet.total.activations == pytest.approx(1.36, abs=5e-3)
    assert resnet.total.parameters == 25_557_032
    assert highway.total.parameters == 26_443_560


def test_mnist10_w16_by_hand():
    stem = 24 * 24 * 16
    maps = {"stage1": (2, 24 * 24 * 16), "stage2": (3, 12 * 12 * 16), "stage3": (3, 6 * 6 * 16)}
    expected = [StageCost("stem", 5 * 5 * 16 + 16, 5 * 5 * stem, stem, 4 * stem)]
    for stage, (layers, size) in maps.items():
        weights, madds = 2 * (9 * 16 * 16 + 16), 2 * 9 * 16 * size  # of h and t
        expected.append(StageCost(stage, layers * weights, layers * madds, layers * 2 * size, layers * 3 * size * 4))
    expected.append(StageCost("head", 144 * 10 + 10, 144 * 10, 10, 40))
    rows = cost(build(VARIANTS["mnist10_w16"]))
    assert rows == expected
    assert rows.total == ("total", *(sum(row[i] for row in expected) for i in range(1, 5)))
    assert rows.total.parameters == VARIANTS["mnist10_w16"].published_parameters


@pytest.mark.parametrize(
    ("gate", "rank", "multiply_adds", "activations"),
    [("same", None, 50 * 50, 50), ("low_rank", 7, 50 * 7 + 7 * 50, 7 + 50), ("channel", None, 0, 0)],
)
def test_gates_of_dense_nets(gate, rank, multiply_adds, activations):
    spec = override(VARIANTS["highway_fc10"], gate=gate, gate_rank=rank)
    stage = cost(build(spec))[1]
    assert stage.multiply_adds == 9 * (50 * 50 + multiply_adds)
    assert stage.activations == 9 * (50 + activations)
    assert stage.activation_bytes == 4 * 9 * (50 + activations + 50)


def test_a_shared_gate_belongs_to_its_stage_and_has_its_parameters_once():
    spec = override(VARIANTS["highway110"], blocks=(3, 3), widths=(4, 8), stem_width=4)
    own, tied = (cost(build(override(spec, gate=gate))) for gate in ("same", "tied"))
    assert [row.stage for row in tied] == ["stem", "stage1", "stage2", "head"]
    assert tied.total.multiply_adds == own.total.multiply_adds
    per_branch = 2 * (9 * 4 * 4 + 2 * 4)
    shared = 2 * (9 * 4 * 4 + 4)  # biases in place of gamma and beta
    assert own[1].parameters - tied[1].parameters == 2 * per_branch - shared  # two gates became one


def test_parameters_are_the_published_ones_even_when_frozen():
    spec = VARIANTS["mnist10_w32"]
    model = build(spec)
    model.trainable = False
    assert cost(model).total.parameters == spec.published_parameters


def test_blocks_in_two_places_and_nested_models():
    spec = override(VARIANTS["highway110"], blocks=(3, 1), widths=(4, 8), stem_width=4)
    model = build(spec)
    once = cost(model)
    twice = cost(rewire(model, {"stage1_block2": "stage1_block3"}))
    assert twice.total.multiply_adds == once.total.multiply_adds
    block = model.get_layer("stage1_block2")
    assert once.total.parameters - twice.total.parameters == sum(int(np.prod(w.shape)) for w in block.trainable_weights)
    backbone = build(spec, include_top=False)
    inputs = keras.Input((32, 32, 3))
    pooled = keras.layers.GlobalAveragePooling2D()(backbone(inputs))
    assert cost(keras.Model(inputs, keras.layers.Dense(10)(pooled))) == once
    stem = keras.Sequential([keras.Input((32, 32, 3)), keras.layers.Conv2D(4, 3, padding="same", name="conv")])
    assert cost(keras.Model(inputs, stem(inputs))) == cost(stem) == [("stem", 112, 108 * 1024, 4096, 4 * 4096)]
    both = keras.layers.Add()([stem(inputs), stem(inputs)])
    assert cost(keras.Model(inputs, both)).total[1:3] == (112, 2 * 108 * 1024)  # one set of weights, used twice


def test_cost_needs_a_fixed_size_and_known_layers():
    spec = override(VARIANTS["highway110"], blocks=(1, 1), widths=(4, 8))
    with pytest.raises(ValueError, match="input_shape="):
        cost(build(spec, input_shape=(None, None, 3)))
    inputs = keras.Input((8, 8, 3))
    strange = keras.Model(inputs, keras.layers.SeparableConv2D(4, 3, name="odd")(inputs))
    with pytest.raises(ValueError, match="'odd'"):
        cost(strange)
