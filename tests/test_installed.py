"""The wheel, in an empty folder and without the checkout: a net is trained on a folder of photographs and used."""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import numpy as np
import pytest
from contracts import NOTICE
from PIL import Image

ROOT = Path(__file__).parents[1]
SMALL = ["net.blocks=[1,1]", "net.widths=[4,8]", "net.stem_width=8", "net.input_shape=[32,32,3]"]
SETTINGS = [*SMALL, "transform=cifar10", "batch_size=2", "epochs=2", "warmup_epochs=0", "learning_rate=0.01"]
# `-S` leaves out the .pth files of this environment, one of which leads to the checkout.
PYTHON = [sys.executable, "-S", "-m"]
START = """
import keras_highway as kh
from keras_highway.data.transforms import TRANSFORMS
model = kh.create_model("resnet50", classes=3, blocks=(1, 1), widths=(4, 8), stem_width=8, input_shape=(32, 32, 3))
kh.save(model, "start", ["bird", "fish", "frog"], TRANSFORMS["cifar10"])
print(kh.__file__)
"""


def pip(*words):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel; hatchling, which makes it, comes from the package index, as when the tests' environment was made."""
    folder = tmp_path_factory.mktemp("wheel")
    done = pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    if "No matching distribution found for hatchling" in done.stderr or "Could not find a version" in done.stderr:
        pytest.skip("needs hatchling, and there is no package index")
    assert done.returncode == 0, done.stderr
    return next(folder.glob("keras_highway-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder that holds the package and nothing else."""
    target = tmp_path_factory.mktemp("installed")
    done = pip("install", "--no-deps", "--target", str(target), str(wheel))
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def pets(tmp_path_factory):
    """A folder of a few JPEGs: red cats and blue dogs."""
    root, draw = tmp_path_factory.mktemp("pets"), np.random.default_rng(0)
    for split in ("train", "val"):
        for channel, name in ((0, "cat"), (2, "dog")):
            (root / split / name).mkdir(parents=True)
            for i in range(4):
                pixels = draw.integers(0, 60, (40, 40, 3)).astype(np.uint8)
                pixels[..., channel] += 180
                Image.fromarray(pixels).save(root / split / name / f"{i}.jpg")
    return root


def run(installed, cwd, *words):
    """Runs `python WORDS` where nothing but the installed package and its dependencies can be imported."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("KERAS_HIGHWAY", "TF_CPP"))}
    paths = [str(installed), *{sysconfig.get_path(name) for name in ("purelib", "platlib")}]
    env |= {"PYTHONPATH": os.pathsep.join(paths), "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    done.stderr = "".join(line for line in done.stderr.splitlines(True) if not NOTICE.match(line))
    return done


@pytest.mark.slow
def test_the_wheel_holds_the_training_code_the_recipes_and_the_small_weights(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("training/train.py", "training/recipes/imagenet.py", "data/photographs.py", "cli/main.py"):
        assert f"keras_highway/{name}" in names
    assert "keras_highway/zoo/weights/mnist10_w32.tvdn/model.weights.h5" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"keras_highway"}


@pytest.mark.slow
def test_an_installed_package_trains_on_a_folder_and_names_its_classes(installed, pets, tmp_path):
    start = run(installed, tmp_path, sys.executable, "-S", "-c", START)
    assert start.returncode == 0, start.stderr
    assert Path(start.stdout.splitlines()[-1]).is_relative_to(installed)  # not the checkout

    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    words = ["train", "resnet50", "--data", str(pets), "--init", "start", "--freeze", "stage1", *settings]
    done = run(installed, tmp_path, *PYTHON, "keras_highway", *words)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    folder = tmp_path / "runs" / "resnet50"
    result = json.loads((folder / "result.json").read_text())
    assert result["class_names"] == ["cat", "dog"] and result["data"] == ""
    assert result["commit"].startswith("keras-highway ")  # there is no commit: the version

    next_line = next(line for line in done.stdout.splitlines() if "classify" in line)
    assert next_line == "  python -m keras_highway classify IMAGE --weights runs/resnet50"
    photograph = str(pets / "val" / "dog" / "0.jpg")
    typed = next_line.replace("IMAGE", photograph).split()[3:]
    named = run(installed, tmp_path, *PYTHON, "keras_highway", *typed, "--top", "2")
    assert named.returncode == 0 and named.stderr == "", named.stderr
    assert {word for word in named.stdout.split() if word.isalpha()} == {"cat", "dog"}

    measured = run(installed, tmp_path, *PYTHON, "keras_highway", "evaluate", "runs/resnet50", "--data", str(pets))
    assert measured.returncode == 0 and "on the 8 images of" in measured.stdout, measured.stderr
