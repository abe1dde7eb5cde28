"""The tables that are made of what the benchmarks measured."""

import json

import numpy as np
import pytest
from benchmarks import host_pipeline
from PIL import Image

from zoo.release.studies import short
from zoo.release.tables import host_pipeline_table, steps_against_keras_table


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


def test_what_the_host_makes_beside_timm(tmp_path):
    def row(ours, timm):
        return {"ours": ours, "timm": timm, "images": 400, "mean_bytes": 54_600.0, "hardware": "a core"}

    cases = {"plain": ([300.0, 310.0], [200.0, 190.0]), "RandAugment": ([200.0, 1.0], [100.0, 160.0])}
    cases["RandAugment, 3 copies"] = ([301.0, 2.0], [301.0, 3.0])
    name = "host pipeline, 224 px, {}, images/s of a core [tensorflow, cpu]"
    path = tmp_path / "results.json"
    path.write_text(json.dumps({name.format(case): row(*both) for case, both in cases.items()}))
    _, _, *lines, _, note = host_pipeline_table(path).splitlines()
    assert [line.rpartition("|")[0].split(" | ", 1)[1].strip() for line in lines] == [
        "310 | 200 | 1.55 | 10",
        "200 | 160 | 1.25 | 15",
        "301 | 301 | 1.00 | 10",
    ]
    assert note == "Best of 2 rounds in turn on one core; 400 JPEGs of 55 kB on average. a core."


def test_files_to_measure_with_are_of_one_size_and_the_same_each_time(tmp_path):
    draw = np.random.default_rng(0)
    for i in range(3):
        (tmp_path / "photographs" / str(i)).mkdir(parents=True)
        pixels = draw.integers(0, 255, (20 + i, 30, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photographs" / str(i) / "x.JPEG")
    with pytest.raises(ValueError, match=r"at least 400 JPEGs\. Received: 3"):
        host_pipeline.make(tmp_path / "photographs", tmp_path / "out")
    mean = []
    for name in ("one", "two"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(host_pipeline, "MADE", 3)
            host_pipeline.make(tmp_path / "photographs", tmp_path / name)
        files = sorted((tmp_path / name).rglob("*.jpg"))
        mean.append([path.read_bytes() for path in files])
        assert [str(path.relative_to(tmp_path / name)) for path in files] == [
            "train/photographs/000.jpg",
            "train/photographs/001.jpg",
            "train/photographs/002.jpg",
            "val/photographs/000.jpg",
        ]
        for path in files:
            with Image.open(path) as image:
                assert image.size == host_pipeline.SIZE
    assert mean[0] == mean[1]
    with pytest.raises(ValueError, match="must be empty"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_pipeline, "MADE", 3)
        host_pipeline.make(tmp_path / "photographs", tmp_path / "one")


def test_numbers_of_two_processors_are_not_one_table(tmp_path, rows):
    path = tmp_path / "results.json"
    path.write_text(json.dumps({**rows, **measured("resnet50", "4 of 224 px", "float32", 0.4, "another, cpu")}))
    with pytest.raises(ValueError, match="must be made alike"):
        steps_against_keras_table(path)


def test_a_commit_that_files_differed_from_is_shown_as_such():
    assert short("0123456789abcdef") == "0123456789ab"
    assert short("0123456789abcdef-dirty") == "0123456789ab-dirty"
