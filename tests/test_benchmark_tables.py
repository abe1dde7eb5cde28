"""The tables that are made of what the benchmarks measured."""

import json

import pytest

from zoo.release.benchmark_tables import steps_against_keras_table
from zoo.release.commits import short


def measured(variant, extent, precision, ratio, hardware="a processor, 2 cores, cpu"):
    name = f"{variant} / keras.applications.ResNet50, train, {extent}, {precision}"
    both = {"cpu": {"ratio": ratio}, "wall": {"ratio": 9.0}}
    return {f"{name} [tensorflow, cpu]": {"name": name, "n": 11, "hardware": hardware, **both}}


@pytest.fixture
def rows():
    return {
        key: row
        for variant, base in (("resnet50", 0.1), ("highway50", 0.5))
        for extent, more in (("32 of 128 px", 0.0), ("4 of 224 px", 0.2))
        for precision, most in (("float32", 0.1), ("mixed_bfloat16", 0.0))
        for key, row in measured(variant, extent, precision, base + more + most).items()
    }


def test_training_steps_beside_those_of_keras(tmp_path, rows):
    path = tmp_path / "results.json"
    path.write_text(json.dumps(rows))
    _, _, *lines, _, note = steps_against_keras_table(path).splitlines()
    assert lines == [
        "| `resnet50`, 32 images of 128 x 128 | 0.20 | 0.10 |",
        "| `resnet50`, 4 images of 224 x 224 | 0.40 | 0.30 |",
        "| `highway50`, 32 images of 128 x 128 | 0.60 | 0.50 |",
        "| `highway50`, 4 images of 224 x 224 | 0.80 | 0.70 |",
    ]
    assert note == "Below 1 is faster. Medians of 11 pairs of steps. a processor, 2 cores, cpu."


def test_numbers_of_two_processors_are_not_one_table(tmp_path, rows):
    path = tmp_path / "results.json"
    path.write_text(json.dumps({**rows, **measured("resnet50", "4 of 224 px", "float32", 0.4, "another, cpu")}))
    with pytest.raises(ValueError, match="must be made alike"):
        steps_against_keras_table(path)


def test_a_commit_that_files_differed_from_is_shown_as_such():
    assert short("0123456789abcdef") == "0123456789ab"
    assert short("0123456789abcdef-dirty") == "0123456789ab-dirty"
