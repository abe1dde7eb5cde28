"""Specs: overriding, checking, writing."""

import dataclasses
import itertools
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_highway.specs import ConvStage, check, override, stochastic_depth_rates, to_dict
from keras_highway.variants import VARIANTS

HIGHWAY50, MNIST, DENSE = (VARIANTS[name] for name in ("highway50", "mnist10_w16", "highway_fc10"))


def test_specs_are_frozen_and_overriding_leaves_the_row():
    new = override(HIGHWAY50, gating="full", widths=(8, 16, 32, 64))
    assert (new.gating, new.widths) == ("full", (8, 16, 32, 64))
    assert (HIGHWAY50.gating, HIGHWAY50.widths) == ("coupled", (48, 96, 192, 384))
    with pytest.raises(dataclasses.FrozenInstanceError):
        HIGHWAY50.gating = "full"


def test_values_of_json_are_accepted():
    new = override(HIGHWAY50, blocks=[1, 1, 1, 1], gate_bias=-3)
    assert new.blocks == (1, 1, 1, 1)
    assert (new.gate_bias, type(new.gate_bias)) == (-3.0, float)
    assert override(HIGHWAY50, neck_width=None).neck_width is None


@pytest.mark.parametrize("name", VARIANTS)
def test_a_row_is_json(name):
    written = json.loads(json.dumps(to_dict(VARIANTS[name])))
    assert written["kind"] == type(VARIANTS[name]).__name__
    assert written["name"] == name
    fields = {f.name for f in dataclasses.fields(VARIANTS[name])}
    assert set(written) == fields | {"kind"}


def test_an_unknown_field_offers_near_names():
    with pytest.raises(ValueError, match="Did you mean 'gating'") as error:
        override(HIGHWAY50, gatign="full")
    assert "highway50" in str(error.value) and "gatign='full'" in str(error.value)
    with pytest.raises(ValueError, match="Unknown field of variant 'highway_fc10'"):
        override(DENSE, blocks=(1, 2))
    with pytest.raises(ValueError, match=r"channels are those of input_shape=\(height, width, channels\).*in_chans=1"):
        override(HIGHWAY50, in_chans=1)


@pytest.mark.parametrize(
    ("spec", "changes", "message"),
    [
        (HIGHWAY50, {"widths": (48, 96, -1, 384)}, "`widths` must be positive"),
        (HIGHWAY50, {"widths": (48, 96, "192", 384)}, "`widths` must be of type tuple"),
        (HIGHWAY50, {"widths": (48, 96, 1.5, 384)}, "`widths` must be of type tuple"),
        (HIGHWAY50, {"widths": ()}, "`widths` must be positive"),
        (HIGHWAY50, {"blocks": (3, 4, 6)}, "one number per stage"),
        (HIGHWAY50, {"blocks": (3, 0, 6, 3)}, "`blocks` must be positive"),
        (HIGHWAY50, {"blocks": 3}, "`blocks` must be of type tuple"),
        (HIGHWAY50, {"stem_width": 0}, "`stem_width` must be positive"),
        (HIGHWAY50, {"neck_width": -5}, "`neck_width` must be positive"),
        (HIGHWAY50, {"stem": "mnist"}, "`stem` must be one of"),
        (HIGHWAY50, {"block": "wide"}, "`block` must be one of"),
        (HIGHWAY50, {"projection": "C"}, "`projection` must be one of"),
        (HIGHWAY50, {"gate_bias": float("nan")}, "`gate_bias` must be a finite number"),
        (HIGHWAY50, {"gate_bias": "low"}, "`gate_bias` must be a finite number or 'by_depth'"),
        (HIGHWAY50, {"gating": None}, "`gating` must be of type str"),
        (HIGHWAY50, {"zero_init": 1}, "`zero_init` must be of type bool"),
        (HIGHWAY50, {"classes": True}, "`classes` must be of type int"),
        (HIGHWAY50, {"stochastic_depth": 1.0}, r"must be in \[0, 1\)"),
        (HIGHWAY50, {"stochastic_depth": float("nan")}, r"must be in \[0, 1\)"),
        (DENSE, {"depth": 0}, "`depth` must be positive"),
        (DENSE, {"units": -50}, "`units` must be positive"),
        (DENSE, {"gate": "tied", "gating": "plain"}, "gate='tied'"),
        (MNIST, {"gate": "tied"}, "gate='tied'"),
        (MNIST, {"stages": (ConvStage(filters=-3, highways=(3,)),)}, "Sizes of `stages`"),
        (MNIST, {"stages": (ConvStage(filters=3, highways=(3, 0)),)}, "Sizes of `stages`"),
        (MNIST, {"stages": ()}, "Sizes of `stages`"),
    ],
)
def test_impossible_values_are_refused(spec, changes, message):
    with pytest.raises(ValueError, match=message) as error:
        override(spec, **changes)
    assert "Received: " in str(error.value) and next(iter(changes)) in str(error.value)


def test_every_row_passes_its_check():
    for spec in VARIANTS.values():
        check(spec)


@given(rate=st.floats(0, 0.99), blocks=st.integers(2, 60))
def test_stochastic_depth_grows_linearly(rate, blocks):
    rates = stochastic_depth_rates(dataclasses.replace(HIGHWAY50, stochastic_depth=rate), blocks)
    assert (len(rates), rates[0]) == (blocks, 0.0)
    assert rates[-1] == pytest.approx(rate)
    assert all(b - a == pytest.approx(rate / (blocks - 1)) for a, b in itertools.pairwise(rates))


def test_one_block_is_always_kept():
    assert stochastic_depth_rates(dataclasses.replace(HIGHWAY50, stochastic_depth=0.5), 1) == [0.0]


def test_specs_need_no_keras():
    """Read by themselves, without the package's `__init__`."""
    code = (
        "import sys, types; package = types.ModuleType('keras_highway'); package.__path__ = [sys.argv[1]]; "
        "sys.modules['keras_highway'] = package; import keras_highway.variants; "
        "assert 'keras' not in sys.modules, 'specs or variants import Keras'"
    )
    folder = sys.modules["keras_highway"].__path__[0]
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
