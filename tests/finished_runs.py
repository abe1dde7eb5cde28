"""Finished runs for tests of the zoo."""

import json
import shutil

import keras_highway as kh
from keras_highway.training.recipes import RECIPES
from keras_highway.weights import files as weights_file
from keras_highway.weights import registry


def finished_run(folder, seed, accuracy):
    """A finished run of mnist10_w16, made from the shipped one."""
    shipped = registry.file_of(registry.WEIGHTS["mnist10_w16.tvdn"]).parent
    folder.mkdir()
    recipe = RECIPES["mnist10_w16"].to_dict()
    result = {**registry.result("mnist10_w16.tvdn"), "seeds": [seed], "values": [accuracy], "mean": accuracy, "n": 1}
    (folder / "recipe.json").write_text(json.dumps({**recipe, "seed": seed}))
    (folder / "result.json").write_text(json.dumps(result))
    shutil.copy(shipped / "log.csv", folder / "log.csv")
    weights_file.save(kh.load("mnist10_w16.tvdn"), folder / "model.weights.h5", "mnist10_w16", 10, transform="mnist")
    return folder
