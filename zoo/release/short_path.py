"""The short path of a newcomer, run where only the wheel is installed: fine-tune, save, push, pull in a fresh process.

A program that `zoo.release.distributions` copies out of the checkout, with
`tests/fake_hub.py`, and starts with the environment's own Python; it draws its
images and pushes to that Hub. It prints a line for each step.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

SHAPES = ("bar", "frame", "dots")
START = "mnist10_w32.tvdn"


def drawing(shape: str, draw: np.random.Generator) -> np.ndarray:
    """Return a drawing of a shape, uint8 `(28, 28, 1)`, somewhere near the middle, under noise."""
    image = draw.integers(0, 40, (28, 28, 1), dtype=np.uint8)
    top, left = draw.integers(2, 8, 2)
    area = image[top : top + 18, left : left + 18]
    if shape == "bar":
        area[7:11] = 230
    elif shape == "frame":
        area[:] = 230
        area[3:-3, 3:-3] = 20
    else:
        area[::6, ::6] = 255
    return image


def main() -> None:
    """Fine-tunes, saves, loads, pushes and pulls."""
    from fake_hub import TOKEN, FakeHub  # pyright: ignore[reportMissingImports] (copied beside this file)

    hub = FakeHub()
    os.environ |= {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1", "HF_HOME": "hub"}

    import keras

    import keras_highway as kh

    keras.utils.set_random_seed(1)
    draw = np.random.default_rng(0)
    images = np.stack([drawing(shape, draw) for _ in range(40) for shape in SHAPES])
    labels = np.tile(np.arange(len(SHAPES)), 40)
    model = kh.create_model("mnist10_w32", weights=START, classes=len(SHAPES))
    kh.freeze(model)
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    x = kh.preprocess_input(images, weights=START)
    model.fit(x, labels, batch_size=24, epochs=6, verbose=0)
    accuracy = model.evaluate(x, labels, verbose=0, return_dict=True)["accuracy"]
    assert accuracy >= 0.9, accuracy
    print(f"fine-tuned from {START}, the head alone: training accuracy {100 * accuracy:.0f} %")
    kh.save(model, "shapes", class_names=SHAPES)
    difference = np.abs(kh.load("shapes").predict(x, verbose=0) - model.predict(x, verbose=0)).max()
    assert difference < 1e-5, difference
    print(f"kh.save, kh.load: largest difference {difference:.0e}")
    pushed = kh.push_to_hub(model, "org/shapes", class_names=SHAPES)
    print(f"kh.push_to_hub: {len(pushed.changed)} files, {pushed.tag}")
    Image.fromarray(drawing("frame", draw)[..., 0]).save("frame.png")
    command = [Path(sys.executable).with_name("keras-highway"), "classify", "frame.png", "--weights", "hf://org/shapes"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    (image,) = json.loads(done.stdout)["images"]
    print(f"keras-highway classify frame.png --weights hf://org/shapes: {image['predictions'][0]['name']}")
    hub.close()


if __name__ == "__main__":
    main()
