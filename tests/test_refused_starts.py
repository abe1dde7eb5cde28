"""Starts of training that are refused, and what they leave; records that say what was so."""

import errno
import json
import os
import struct

import keras
import numpy as np
import pytest

import keras_highway as kh
from keras_highway._support.event_file import EventFile
from keras_highway._support.files import may_pass
from keras_highway.hub.error import HubError
from keras_highway.training import shards, train
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.loop import train as train_recipe
from keras_highway.training.optimizers import DecayedLamb, make_optimizer, make_schedule
from keras_highway.training.program import ImageProgram, make_loss
from keras_highway.training.recipe import changed, with_settings
from keras_highway.training.recipes import RECIPES, tiny
from keras_highway.training.run_folder import RunFolder, defaults_of, same_recipe
from keras_highway.weights.info import WeightFileError

W16 = tiny(RECIPES["mnist10_w16"])


def test_what_a_kill_left_of_a_shard_is_no_other_division(tmp_path):
    from PIL import Image

    for split in ("train", "val"):
        for name in ("cat", "dog"):
            (tmp_path / "in" / split / name).mkdir(parents=True)
            Image.new("RGB", (8, 8), (200, 10, 10)).save(tmp_path / "in" / split / name / "a.jpg")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".partial-train-00000-of-00001.tfrecord").write_bytes(b"half")
    manifest = shards.write(tmp_path / "in", tmp_path / "out")
    assert manifest["splits"]["train"]["images"] == 2


@pytest.mark.slow
def test_the_precision_is_the_recipes_whatever_the_global_policy(tmp_path):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        recipe = changed(W16, epochs=1, precision="float32")
        result = train_recipe(recipe, None, tmp_path)
        from keras_highway.training.data.source import open_source

        net = ImageProgram(recipe, open_source(recipe, None), None).net
    finally:
        keras.config.set_dtype_policy(before)
    assert result["precision"] == "float32"
    assert {block.compute_dtype for block in kh.analysis.blocks(net).values()} == {"float32"}


def test_a_refused_start_does_not_block_its_remedy(tmp_path):
    wrong = changed(W16, epochs=1, rate_multipliers=(("haed/*", 2.0),))
    with pytest.raises(ValueError, match="haed"):
        train_recipe(wrong, None, tmp_path)
    right = changed(wrong, rate_multipliers=(("head/*", 2.0),))
    assert train_recipe(right, None, tmp_path)["n"] == 1
    with pytest.raises(ValueError, match="holds a run of another recipe"):  # now there is something to lose
        train_recipe(changed(right, seed=5), None, tmp_path)


@pytest.mark.more
def test_a_run_goes_on_with_the_data_it_began_with(tmp_path):
    recipe = changed(W16, epochs=2)
    assert train_recipe(recipe, None, tmp_path, until=1) is None
    facts = json.loads((tmp_path / "data.json").read_text())
    assert facts["steps_per_epoch"] >= 1
    (tmp_path / "data.json").write_text(json.dumps({**facts, "steps_per_epoch": 99, "class_names": ["a"]}))
    with pytest.raises(ValueError, match="begun with other data: class_names a, now class_names none"):
        train_recipe(recipe, None, tmp_path)
    (tmp_path / "data.json").write_text(json.dumps(facts))
    assert train_recipe(recipe, None, tmp_path)["epochs"] == 2
    other = tmp_path / "other"  # where nothing was trained, the data may be others
    other.mkdir()
    (other / "recipe.json").write_text(json.dumps(recipe.to_dict()))
    (other / "data.json").write_text(json.dumps({**facts, "steps_per_epoch": 99}))
    assert train_recipe(recipe, None, other, until=1) is None


def test_overrides_in_another_order_are_the_same_recipe():
    one, two = (
        with_settings(W16, list(settings))
        for settings in (("net.gate_bias=-3", "net.remat=true"), ("net.remat=true", "net.gate_bias=-3"))
    )
    assert one.overrides != two.overrides
    assert same_recipe(one.to_dict(), two.to_dict(), defaults_of(one))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            "highway50_imagenette",
            ["momentum=0.8"],
            "`momentum` is used only with optimizer='sgd' or optimizer='muon': leave it out",
        ),
        ("highway50_imagenette", ["nesterov=false"], "`nesterov` is used only with optimizer='sgd'"),
        ("highway50_imagenette", ["milestones=0.5,0.8"], "`milestones` is used only with schedule='step'"),
        ("highway50_imagenette", ["decay=0.9"], "`decay` .* schedule='exponential' or schedule='plateau'"),
        ("highway50_imagenette", ["target_threshold=0.2"], "`target_threshold` is used only with loss='bce'"),
        ("resnet110", ["final_rate=0.001"], "`final_rate` is used only with schedule='cosine' or"),
        ("resnet110", ["schedule=constant", "warmup_epochs=2"], "Received: warmup_epochs=2, schedule='constant'"),
        ("resnet110", ["warmup_epochs=0", "warmup_rate=0.02"], "`warmup_rate` is used only with a warm-up"),
        ("highway110", ["warmup_epochs=3"], "would train 3 epochs at rate 0: set `warmup_rate`.* schedule='step'"),
        ("highway20", ["schedule=step"], "Received: warmup_epochs=3, warmup_rate=0.0, schedule='step'"),
        ("mnist10_w16", ["schedule=plateau"], "below 1 with a schedule that decays.* decay=1.0, schedule='plateau'"),
        ("mnist10_w16", ["schedule=exponential", "decay=10"], "at most 1.* Received: decay=10"),
        (
            "highway50_a2",
            ["label_smoothing=0.1", "mixup=0", "cutmix=0"],
            "set one of the two, target_threshold=None or",
        ),
        ("resnet110", ["epochs=1"], "`warmup_epochs` must be less than `epochs` with schedule='step'"),
    ],
)
def test_a_setting_that_would_do_nothing_is_refused(name, settings, message):
    with pytest.raises(ValueError, match=message):
        with_settings(RECIPES[name], settings)


def test_smoothing_beside_a_threshold_is_for_mixed_images():
    """A share of 0.21 of ten classes is 0.9 * 0.21 + 0.01 = 0.199 when smoothed: no longer above 0.2."""
    recipe = with_settings(RECIPES["highway50_a2"], ["label_smoothing=0.1"])
    logits = np.array([[3.0, -2.0] + [0.0] * 8], np.float32)
    losses = {
        smoothing: float(
            make_loss(changed(recipe, label_smoothing=smoothing), 10)(np.array([0]), logits, ([1], np.float32([0.79])))[
                0
            ]
        )
        for smoothing in (0.0, 0.1)
    }
    expected = [np.log1p(np.exp(-3)), np.log1p(np.exp(-2)), *[np.log(2)] * 8]
    assert losses[0.1] == pytest.approx(np.mean(expected), rel=1e-5)
    assert losses[0.0] == pytest.approx(np.mean(expected) + 2 / 10, rel=1e-5)  # the partner counts: softplus(2)


@pytest.mark.parametrize(("threshold", "side"), [(0.005, 1), (0.91, 0), (0.95, 0)])
def test_a_threshold_beside_which_all_targets_are_alike_is_refused(threshold, side):
    """Smoothed by 0.1 the targets of ten classes are 0.01 to 0.91."""
    recipe = changed(RECIPES["highway50_a2"], label_smoothing=0.1, target_threshold=threshold)
    message = rf"All targets would be {side}: of 10 classes .* are 0.01 to 0.91. Received: target_threshold={threshold}"
    with pytest.raises(ValueError, match=message):
        make_loss(recipe, 10)
    assert make_loss(changed(recipe, target_threshold=0.01), 10)


def test_what_a_recipe_states_does_not_hinder_other_settings():
    """Its milestones and momentum lose their use; that is what was asked for."""
    recipe = with_settings(RECIPES["resnet110"], ["schedule=constant", "warmup_epochs=0", "optimizer=lamb"])
    assert recipe.schedule == "constant" and recipe.momentum == RECIPES["resnet110"].momentum
    sgd = with_settings(RECIPES["highway50_imagenette"], ["optimizer=sgd", "beta_2=0.999", "momentum=0.8"])
    assert sgd.momentum == 0.8


def rates(recipe, steps):
    schedule = make_schedule(recipe, 10)
    return [round(float(schedule(step)), 6) for step in steps]


def test_a_warm_up_past_a_milestone():
    recipe = changed(RECIPES["resnet110"], epochs=20, warmup_epochs=12)  # milestones after 10 and 15 epochs
    low, high = recipe.warmup_rate, recipe.learning_rate
    assert rates(recipe, (0, 119, 120, 149, 150, 199)) == [low, low, high / 10, high / 10, high / 100, high / 100]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"milestones": ()}, "`milestones` of schedule='step' must be one at least"),
        ({"decay": 0.0}, "`decay` must be positive"),
        ({"bias_multiplier": -3.0}, "`bias_multiplier` must not be negative"),
        ({"plateau_delta": -5.0}, "`plateau_delta` must not be negative"),
        ({"learning_rate": float("inf")}, "`learning_rate` must be a finite number"),
        ({"learning_rate": 10**400}, "`learning_rate` must be of type float"),
        ({"milestones": ("a",)}, "`milestones` must be of type tuple"),
        ({"overrides": (1, 2)}, "`overrides` must be of type tuple"),
        ({"rate_multipliers": ("head/*", 2)}, "`rate_multipliers` must be of type tuple"),
    ],
)
def test_settings_that_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        changed(RECIPES["cifar10_19layer"], **changes).check()


def test_a_transform_of_other_images_is_refused_before_training(tmp_path):
    images, labels = np.zeros((20, 32, 32, 3), "uint8"), np.arange(20) % 10
    np.savez(tmp_path / "cifar10.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    with pytest.raises(ValueError, match="transform='mnist' is for images of shape"):
        train_recipe(changed(RECIPES["highway20"], transform="mnist", batch_size=4), tmp_path, tmp_path / "run")


def test_decay_is_of_kernels():
    net = kh.create_model("highway20", gate="channel", blocks=(1, 1, 1), widths=(4, 4, 8), stem_width=4)
    recipe = changed(RECIPES["resnet50_imagenette"], weight_decay=0.5)
    adamw = make_optimizer(recipe, 0.1)
    adamw.build(net.trainable_variables)
    decayed = {v.name for v in net.trainable_variables if adamw._use_weight_decay(v)}
    assert decayed == {"kernel"}
    stack = kh.create_model("highway_fc10", scanned=True, depth=4, units=5)
    lamb = DecayedLamb(0.0, decay=0.5)
    lamb.build(stack.trainable_variables)
    before = {v.path: np.array(v) for v in stack.trainable_variables}
    lamb.learning_rate = 1.0
    lamb.apply([keras.ops.zeros_like(v) for v in stack.trainable_variables])
    moved = {v.path for v in stack.trainable_variables if (np.array(v) != before[v.path]).any()}
    assert moved == {v.path for v in stack.trainable_variables if "kernel" in v.path}


def test_losses_beyond_a_float32(tmp_path):
    EventFile(tmp_path).write(1, {"perplexity": 1e304, "other": -1e304, "fine": 2.5})
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    assert all(struct.pack("<f", value) in content for value in (float("inf"), float("-inf"), 2.5))


@pytest.mark.parametrize(("number", "code"), [(errno.EIO, 1), (errno.ESTALE, 1), (errno.ENOENT, 2), (errno.ENOSPC, 2)])
def test_errors_that_may_pass_have_a_code_of_their_own(number, code, monkeypatch, tmp_path, capsys):
    def fails(*args, **kwargs):
        raise OSError(number, "the disk says no")

    monkeypatch.setattr(train, "_train", lambda: fails)
    with pytest.raises(SystemExit) as exit_:
        train.main(["mnist10_w16", "--tiny", "--out", str(tmp_path)])
    assert exit_.value.code == code and "the disk says no" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="locks are those of POSIX")
@pytest.mark.parametrize("number", [errno.EIO, errno.EAGAIN, errno.EACCES])
def test_a_file_system_that_is_away_or_a_lock_that_another_has_is_not_one_without_locks(number, tmp_path, monkeypatch):
    """The run would go on without its lock. Of a file on SMB that another has locked Linux says EACCES."""

    def away(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", away)
    refused = (OSError, "Input/output error") if number == errno.EIO else (ValueError, "Another process is training in")
    with pytest.raises(refused[0], match=refused[1]):
        RunFolder(tmp_path, W16, Strategy())


def test_what_such_an_error_caused_may_pass_too():
    """Not what a network caused: the Hub says what to do."""
    errors = {kind: kind("could not be read") for kind in (ValueError, WeightFileError, HubError)}
    for error in errors.values():
        error.__cause__ = OSError(errno.ENETUNREACH, "Network is unreachable")
    assert {kind: may_pass(error) for kind, error in errors.items()} == {
        ValueError: True,
        WeightFileError: True,
        HubError: False,
    }


@pytest.mark.parametrize("option", ["init", "freeze"])
def test_an_empty_start_is_not_a_random_one(option, monkeypatch, capsys):
    """As of a shell's variable that is not set."""
    monkeypatch.setattr(train, "_train", lambda: pytest.fail("it trains"))
    with pytest.raises(SystemExit) as ended:
        train.main(["mnist10_w16", "--tiny", f"--{option}", ""])
    assert ended.value.code == 2 and f"--{option} is empty" in capsys.readouterr().err


def test_photographs_lie_where_the_variable_says(monkeypatch, tmp_path):
    recipe = RECIPES["resnet50_imagenette"]
    monkeypatch.delenv("KERAS_HIGHWAY_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"photographs of imagenette lie in no place known.*--data DIR"):
        train_recipe(recipe, None, tmp_path / "run")
    monkeypatch.setenv("KERAS_HIGHWAY_DATA", str(tmp_path))
    (tmp_path / "imagenette").mkdir()
    with pytest.raises((FileNotFoundError, ValueError), match="imagenette"):
        train_recipe(recipe, None, tmp_path / "run")
    with pytest.raises(ValueError, match="imagenette is a folder of photographs"):
        kh.data.load_dataset("imagenette")


@pytest.mark.slow
def test_a_search_does_not_take_over_runs_of_another_recipe(tmp_path):
    from training import search

    with pytest.raises(ValueError, match="holds a run of another recipe than this search's"):
        train_recipe(changed(W16, epochs=1), None, tmp_path)
        search._resume(changed(W16, epochs=1, seed=9), None, tmp_path, 1)


@pytest.mark.more
def test_a_search_ends_a_run_that_has_the_result_of_an_earlier_epoch(tmp_path, monkeypatch):
    """Killed before it wrote the result of the last one."""
    from training import search

    recipe = changed(W16, epochs=2)
    train_recipe(recipe, None, tmp_path, until=1, finish=True)
    with monkeypatch.context() as patch:
        patch.setattr("keras_highway.training.program.weights_file.save", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            train_recipe(recipe, None, tmp_path)
    (tmp_path / "result.json").write_text(json.dumps({"mean": 0.1, "epochs": 1, "of_epochs": 2}))
    search._resume(recipe, None, tmp_path, 2)
    assert json.loads((tmp_path / "result.json").read_text())["epochs"] == 2


def _interrupt(*_args, **_kwargs):
    raise KeyboardInterrupt


def test_table1a_does_not_show_a_run_of_other_settings(tmp_path):
    from training.table1a import _is_finished

    recipe = tiny(RECIPES["charlm_small_plain"])
    (tmp_path / "result.json").write_text(json.dumps({"mean": 80.0}))
    (tmp_path / "recipe.json").write_text(json.dumps(recipe.to_dict()))
    assert _is_finished(tmp_path, recipe)
    with pytest.raises(ValueError, match="finished run of another recipe than charlm_small_plain"):
        _is_finished(tmp_path, changed(recipe, epochs=99))
    (tmp_path / "result.json").write_text(json.dumps({"mean": 80.0, "of_epochs": 9}))
    assert not _is_finished(tmp_path, recipe)


def test_a_run_with_nothing_left_to_train(tmp_path):
    settings = ["init='mnist10_w16.tvdn'", "freeze=head", "data=synthetic_mnist", "decay_multipliers=()", "epochs=1"]
    with pytest.raises(ValueError, match=r"Nothing is left to train behind what is frozen\. Received: freeze='head'"):
        train_recipe(with_settings(RECIPES["mnist10_w16"], settings), None, tmp_path)
    assert not (tmp_path / "log.csv").exists()
