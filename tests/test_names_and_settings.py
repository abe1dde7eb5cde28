"""What layers' names mean, and the one grammar of `--set`."""

import pytest

from keras_highway._support.keras_models import position_of, stage_of
from keras_highway._support.schema import parse_setting


@pytest.mark.parametrize(
    ("name", "stage", "position"),
    [
        ("stage2_block13", "stage2", (2, 13)),
        ("stage1_pool", "stage1", None),
        ("stage10_block1_probe", "stage10", None),
        ("stage1", "stage1", None),
        ("stages_block1", None, None),
        ("stem", None, None),
        ("my_stage1_block1", None, None),
    ],
)
def test_layer_names(name, stage, position):
    assert stage_of(name) == stage and position_of(name) == position


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x=3", 3),
        ("x=-4.5", -4.5),
        ("x=true", True),
        ("x=None", None),
        ("x=null", None),
        ("x=[1,2]", [1, 2]),
        ("x=(0.5, 0.2)", (0.5, 0.2)),
        ("x=full", "full"),
        ("x=a=b", "a=b"),
        ("x=", ""),
        ("x=__import__('os')", "__import__('os')"),
        ("x=" + "(" * 500, "(" * 500),
    ],
)
def test_settings(text, value):
    field, actual = parse_setting(text)
    assert field == "x" and actual == value and type(actual) is type(value)


@pytest.mark.parametrize("text", ["x", "=3", ""])
def test_settings_without_field_or_value(text):
    with pytest.raises(ValueError, match="--set takes FIELD=VALUE"):
        parse_setting(text)
