"""Parameters by arithmetic are those of the built networks."""

import math

import pytest

from keras_highway.cli.parameters import count_parameters
from keras_highway.models.builder import build
from keras_highway.specs import override
from keras_highway.variants import VARIANTS
from tests.contracts import distinct_miniatures

SMALL = distinct_miniatures()
EVERYWHERE = ({"gating": "full"}, {"gating": "c_only", "gate": "channel"}, {"gate": "low_rank", "gate_rank": 3})
# Several blocks share a tied gate; a pointwise gate has a bias and no batch normalization.
RESIDUAL_STYLE = ({"gate": "tied", "blocks": 3}, {"gate": "pointwise", "gating": "full"}, {"batch_norm": False})


@pytest.mark.parametrize("name", [n for n, spec in VARIANTS.items() if spec.published_parameters])
def test_counts_are_the_published_ones(name):
    assert count_parameters(VARIANTS[name]) == VARIANTS[name].published_parameters


@pytest.mark.parametrize("name", SMALL)
def test_counts_are_those_of_the_built_network(name):
    assert count_parameters(SMALL[name]) == trainable(build(SMALL[name]))


@pytest.mark.parametrize(
    ("variant", "changes"),
    [
        *(
            (name, changes)
            for name in ("highway50", "highway110", "mnist10_w16", "highway_fc10")
            for changes in EVERYWHERE
        ),
        *((name, changes) for name in ("highway50", "highway110") for changes in RESIDUAL_STYLE),
    ],
    ids=str,
)
def test_counts_with_other_gates(variant, changes):
    spec = SMALL[variant]
    if "blocks" in changes:
        changes = {**changes, "blocks": (changes["blocks"], *spec.blocks[1:])}
    spec = override(spec, **changes)
    assert count_parameters(spec) == trainable(build(spec))


def test_other_specs_are_refused():
    with pytest.raises(TypeError, match="parameters of a str"):
        count_parameters("highway50")


def trainable(model) -> int:
    return sum(math.prod(weight.shape) for weight in model.trainable_weights)
