"""The training loop: it learns, resumes exactly, keeps its last good state, logs and stops."""

import contextlib
import csv
import dataclasses
import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from requests_to_stop import Asked

import keras_highway as kh
from keras_highway._support import event_file
from keras_highway._support.files import atomic_write
from keras_highway.training import loop, program
from keras_highway.training.data.samples import Shard
from keras_highway.training.data.source import open_source
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.loop import Run, train
from keras_highway.training.program import ImageProgram, whitening_kernel
from keras_highway.training.recipe import Recipe, with_settings
from keras_highway.training.recipes import RECIPES, tiny
from keras_highway.training.run_folder import RunFolder
from keras_highway.weights.info import format_epochs
from tests.checkpoints import arrays
from tests.small_disks import files_of_at_most

TINY = dataclasses.replace(tiny(RECIPES["mnist10_w16"]), epochs=3)
DENSE = dataclasses.replace(tiny(RECIPES["highway_fc10"]), learning_rate=0.05)
SHORT = with_settings(tiny(RECIPES["highway_fc10"]), ["net.depth=2", "epochs=3"])
CALM = SimpleNamespace(made=False)


class Killed(BaseException):
    """Stands for a process that dies."""


def dies(*_args, **_kwargs):
    raise Killed


def folder_of(path, recipe) -> RunFolder:
    return RunFolder(path, recipe, Strategy())


def program_of(recipe: Recipe, out, **options):
    """A program and its run, outside of `train`."""
    source = open_source(recipe, None)
    made = ImageProgram(recipe, source, source.on_device())
    return made, Run(made, source, Strategy(), folder_of(out, recipe), **options)


def rows(folder, file="log.csv") -> list[dict]:
    with (folder / file).open(newline="") as stream:
        return list(csv.DictReader(stream))


def same_state(one, other):
    a, b = (arrays(folder / "checkpoint.npz") for folder in (one, other))
    assert list(a) == list(b)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def test_training_learns_and_writes_its_folder(tmp_path):
    recipe = dataclasses.replace(
        RECIPES["highway_fc10"], data="synthetic_mnist", epochs=8, batch_size=10, learning_rate=0.1
    )
    result = train(recipe, None, tmp_path)
    assert result["mean"] > 0.9 and result["n"] == 1 and result["std"] is None
    assert result["hardware"] and result["versions"]["keras"] == keras.__version__
    assert (result["strategy"], result["replicas"]) == ("none", 1)
    rows = folder_of(tmp_path, recipe).rows()
    assert len(rows) == 8 and float(rows[-1]["train_loss"]) < 0.1 * float(rows[0]["train_loss"])
    assert float(rows[-1]["test_accuracy"]) == result["mean"]
    model = kh.create_model("highway_fc10", weights=str(tmp_path / "model.weights.h5"), classes=10)
    data = open_source(recipe, None)
    x, y = data._test
    accuracy = (model.predict(kh.preprocess_input(x, weights="mnist"), verbose=0).argmax(1) == y).mean()
    assert accuracy == pytest.approx(result["mean"])


@pytest.mark.parametrize(("dropout_from", "drops"), [(0.75, True), (1.0, False)])  # 1 is never
def test_phases_of_a_run(tmp_path, dropout_from, drops):
    """Sizes, dropout and the whitened stem change what a step computes, as the recipe states."""
    recipe = dataclasses.replace(tiny(RECIPES["cifar10_19layer_fast"]), epochs=4, train_sizes=((0.5, 16),))
    recipe = dataclasses.replace(recipe, dropout_from=dropout_from)
    program, run = program_of(recipe, tmp_path)
    batch = [keras.ops.convert_to_tensor(array) for array in next(run.source.batches(0, 0, Shard()))]
    seen = []
    for epoch in range(4):
        program.begin_epoch(epoch)
        images = program._samples(batch, program._training_data)[0]
        outputs = [keras.ops.convert_to_numpy(program._logits(images, training=True)) for _ in range(2)]
        seen.append((images.shape[1], not np.array_equal(*outputs)))
    assert seen == [(16, False), (16, False), (32, False), (32, drops)]
    stem = keras.ops.convert_to_numpy(program.net.get_layer("stem").kernel)
    np.testing.assert_allclose(stem[..., 0], -stem[..., 1], atol=1e-6)


def test_a_whitening_kernel_makes_responses_independent():
    draw = np.random.default_rng(0)
    images = np.cumsum(draw.normal(size=(50, 12, 12, 2)), axis=2).astype("float32")  # neighbours are alike
    kernel = whitening_kernel(images, (3, 3, 2, 12))
    responses = keras.ops.convert_to_numpy(keras.ops.conv(images, kernel[..., ::2])).reshape(-1, 6)
    np.testing.assert_allclose(np.cov(responses, rowvar=False), np.eye(6), atol=0.02)


def test_logged_losses_are_those_of_keras(tmp_path):
    """Keras's own fit and evaluate on the same batches in the same order."""
    recipe = dataclasses.replace(DENSE, epochs=1, weight_decay=0.0, momentum=0.0, train_images=48)
    program, run = program_of(recipe, tmp_path)
    model = keras.models.clone_model(program.net)
    model.set_weights(program.net.get_weights())
    run.epoch(CALM)
    source = open_source(recipe, None)
    order = source.samples(0)[:, 0]
    model.compile(
        keras.optimizers.SGD(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
    )
    scale = lambda x: kh.preprocess_input(x, weights="mnist")  # noqa: E731
    history = model.fit(scale(source._train[0][order]), source._train[1][order], batch_size=8, shuffle=False, verbose=0)
    test = model.evaluate(scale(source._test[0]), source._test[1], verbose=0, return_dict=True)
    row = run.rows[0]
    assert row["train_loss"] == pytest.approx(history.history["loss"][0], rel=1e-5)
    assert row["train_accuracy"] == pytest.approx(history.history["accuracy"][0])
    assert row["test_loss"] == pytest.approx(test["loss"], rel=1e-5)
    assert row["test_accuracy"] == pytest.approx(test["accuracy"])
    for actual, expected in zip(program.net.weights, model.weights, strict=True):
        np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), atol=1e-6)


@pytest.mark.parametrize("file", ["checkpoint.npz", "log.csv", "result.json"])
def test_resume_is_exact_wherever_writing_ends(tmp_path, monkeypatch, file):
    """Dies as it writes a file of the second epoch (or the last file); resumes; the state is bit-identical."""
    whole = train(TINY, None, tmp_path / "whole")
    count = 0

    def dies(path, write):
        nonlocal count
        count += path.name == file
        if path.name == file and (count == 2 or file == "result.json"):
            raise Killed
        atomic_write(path, write)

    with monkeypatch.context() as patch:
        for module in ("training.checkpoint", "training.run_folder", "_support.files"):
            patch.setattr(f"keras_highway.{module}.atomic_write", dies)
        with pytest.raises(Killed):
            train(TINY, None, tmp_path / "cut")
    resumed = train(TINY, None, tmp_path / "cut")
    assert resumed["values"] == whole["values"] and resumed["train_loss"] == whole["train_loss"]
    same_state(tmp_path / "whole", tmp_path / "cut")
    assert any(name.startswith("seed/") for name in arrays(tmp_path / "cut" / "checkpoint.npz"))


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 300])
def test_a_run_on_a_full_disk_names_the_file_and_resumes(tmp_path, size):
    train(SHORT, None, tmp_path / "whole", log_steps=True)
    assert train(SHORT, None, tmp_path / "cut", log_steps=True, until=1) is None
    with files_of_at_most(size), pytest.raises(OSError, match=r"/cut/.* could not be written: File too large"):
        train(SHORT, None, tmp_path / "cut", log_steps=True, save_steps=2)
    train(SHORT, None, tmp_path / "cut", log_steps=True)
    assert (tmp_path / "cut" / "steps.csv").read_bytes() == (tmp_path / "whole" / "steps.csv").read_bytes()
    assert not [path.name for path in (tmp_path / "cut").rglob("*") if "partial" in path.name]


def test_an_infinite_loss_names_the_step_and_keeps_the_last_state(tmp_path):
    bad = dataclasses.replace(DENSE, learning_rate=1e30, schedule="constant")
    with pytest.raises(FloatingPointError, match=r"became (nan|inf) in step \d+ of the run. No state was saved"):
        train(bad, None, tmp_path / "new")
    assert not (tmp_path / "new" / "checkpoint.npz").exists()
    late = dataclasses.replace(bad, schedule="step", milestones=(0.9,), warmup_epochs=1, warmup_rate=1e-3)
    with pytest.raises(FloatingPointError, match="last good state is in"):
        train(late, None, tmp_path / "late")
    assert all(np.isfinite(value).all() for value in arrays(tmp_path / "late" / "checkpoint.npz").values())


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    made, run = program_of(DENSE, tmp_path)
    run.save(run.progress)
    before = run.folder.checkpoint.read_bytes()
    made.net.trainable_variables[0].assign(np.full(made.net.trainable_variables[0].shape, np.nan))
    with pytest.raises(FloatingPointError, match=r"net/.*kernel has values that are not finite"):
        run.save(run.progress)
    assert run.folder.checkpoint.read_bytes() == before


@pytest.mark.parametrize("missing", ["result.json", "model.weights.h5"])
def test_a_file_that_a_kill_left_out_at_the_end_is_written(missing, tmp_path, monkeypatch):
    result = train(TINY, None, tmp_path)
    (tmp_path / missing).unlink()
    monkeypatch.setattr("keras_highway.training.run_folder.accelerators", lambda: ["1 x GPU"])
    again = train(TINY, None, tmp_path)
    assert again["hardware_changes"][1].startswith("1 x GPU") and again["values"] == result["values"]
    assert (tmp_path / missing).exists()


@pytest.mark.parametrize(
    ("module", "name", "weights_stay", "result_stays"),
    [
        (loop.Run, "epoch", True, True),
        pytest.param(program.weights_file, "save", True, False, marks=pytest.mark.slow),
        pytest.param(loop, "atomic_write_json", False, False, marks=pytest.mark.slow),
    ],
)
def test_a_result_belongs_to_the_weights_next_to_it(module, name, weights_stay, result_stays, tmp_path, monkeypatch):
    """A run resumes after `finish` and dies."""
    early = train(DENSE, None, tmp_path, until=1, finish=True)
    assert (early["epochs"], early["of_epochs"], format_epochs(early)) == (1, 2, "1 of 2")
    assert early["mean"] == float(rows(tmp_path)[-1]["test_accuracy"])
    weights, result = tmp_path / "model.weights.h5", tmp_path / "result.json"
    before = weights.read_bytes()
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(module, name, dies)
        train(DENSE, None, tmp_path)
    assert (weights.read_bytes() == before) == weights_stay and result.exists() == result_stays
    whole = train(DENSE, None, tmp_path)
    assert "of_epochs" not in whole and format_epochs(whole) == "2" and weights.read_bytes() != before
    assert json.loads(result.read_text()) == whole


def test_the_log_the_line_the_events_and_the_hooks_agree(tmp_path, capsys):
    tf = pytest.importorskip("tensorflow")  # reads event files of any backend
    pytest.importorskip("tensorboardX")
    seen = []
    train(DENSE, None, tmp_path, hooks=(lambda run: seen.append(run.rows[-1]["epoch"]),))
    assert seen == [1, 2]
    out = capsys.readouterr().out
    for word in ("epoch   1/2", "loss", "train", "test", "rate", "images/s", "waiting", "min left"):
        assert word in out
    _, run = program_of(DENSE, tmp_path / "other")
    events = {
        (value.tag, event.step): value.simple_value
        for file in (tmp_path / "tensorboard").iterdir()
        for event in tf.compat.v1.train.summary_iterator(str(file))
        for value in event.summary.value
    }
    for row in rows(tmp_path):
        assert run.line({key: float(value) for key, value in row.items()} | {"epoch": int(row["epoch"])}) in out
        for name in ("train_loss", "test_accuracy"):
            assert events[name, int(row["step"])] == pytest.approx(float(row[name]), rel=1e-6)


def test_without_tensorboardx_a_run_says_so_once_and_logs(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    event_file._is_installed.cache_clear()
    train(SHORT, None, tmp_path)
    assert capsys.readouterr().err.count("tensorboardX") == 1
    assert len(rows(tmp_path)) == 3 and not (tmp_path / "tensorboard").exists()
    event_file._is_installed.cache_clear()


def test_every_step_has_its_loss_and_a_resumed_run_the_same(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(DENSE, None, whole, log_steps=True)
    steps, epochs = rows(whole, "steps.csv"), rows(whole)
    assert [int(row["step"]) for row in steps] == list(range(1, int(epochs[-1]["step"]) + 1))
    losses, per_epoch = [float(row["train_loss"]) for row in steps], len(steps) // 2
    assert len(set(losses)) == len(losses)
    for epoch, row in enumerate(epochs):
        mean = sum(losses[epoch * per_epoch : (epoch + 1) * per_epoch]) / per_epoch
        assert mean == pytest.approx(float(row["train_loss"]), rel=1e-6)
    # Saved every other step, stopped after the third; then killed in the second epoch: later lines are written again.
    _, run = program_of(DENSE, cut, save_steps=2, log_steps=True)
    with contextlib.closing(run.folder):
        run.restore()
        with pytest.raises(SystemExit):
            run.epoch(Asked(2))
    assert [row["step"] for row in rows(cut, "steps.csv")] == ["1", "2", "3"]
    for until in (1, None):
        with (cut / "steps.csv").open("a") as file:
            file.write("4,99.0\n5,9" if until else f"{per_epoch + 1},99.0\n{per_epoch + 2},9")
        train(DENSE, None, cut, log_steps=True, until=until)
    assert (cut / "steps.csv").read_text() == (whole / "steps.csv").read_text()


def test_missing_losses_of_steps_are_refused(tmp_path):
    train(DENSE, None, tmp_path, log_steps=True, until=1)
    lines = (tmp_path / "steps.csv").read_text().splitlines()
    (tmp_path / "steps.csv").write_text("\n".join([*lines[:2], *lines[3:], "junk"]))
    with pytest.raises(ValueError, match="has 1 steps of the"):
        train(DENSE, None, tmp_path, log_steps=True)
    (tmp_path / "steps.csv").unlink()
    with pytest.raises(ValueError, match=r"has 0 steps of the .*without --log-steps"):
        train(DENSE, None, tmp_path, log_steps=True)
    assert not (tmp_path / "steps.csv").exists()
    assert train(DENSE, None, tmp_path)["epochs"] == 2


def test_micro_batches_match_the_large_batch(tmp_path):
    ends = []
    for parts in (1, 4):
        recipe = dataclasses.replace(DENSE, micro_batches=parts, weight_decay=1e-3)
        train(recipe, None, tmp_path / str(parts))
        ends.append(arrays(tmp_path / str(parts) / "checkpoint.npz"))
    for name in ends[0]:
        np.testing.assert_allclose(ends[0][name], ends[1][name], atol=1e-6, err_msg=name)


def test_moving_average_covers_weights_and_batch_statistics(tmp_path):
    recipe = dataclasses.replace(tiny(RECIPES["resnet110"]), ema=0.5, epochs=1, train_images=16)
    program, run = program_of(recipe, tmp_path)
    expected = [np.asarray(v) for v in program.averaged]
    names = [v.name for v in program.averaged]
    for batch in run.source.batches(0, 0, Strategy.shard):
        run.engine.train(batch)
        run.engine.sync()
        expected = [0.5 * e + 0.5 * np.asarray(v) for e, v in zip(expected, program.averaged, strict=True)]
    assert {"moving_mean", "moving_variance", "gamma", "kernel"} <= set(names)
    for average, value in zip(program.averages, expected, strict=True):
        np.testing.assert_allclose(np.asarray(average), value, rtol=1e-4, atol=1e-6)
    own = program.net.get_weights()
    with program.averages_in_place(run.strategy.to_numpy):
        np.testing.assert_allclose(program.net.get_weights()[0], expected[0], rtol=1e-4, atol=1e-6)
    for before, after in zip(own, program.net.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)


def test_clipping_bounds_the_whole_gradient(tmp_path):
    recipe = dataclasses.replace(DENSE, clip_norm=1e-3, momentum=0.0, learning_rate=1.0, schedule="constant", epochs=1)
    program, run = program_of(recipe, tmp_path)
    before = program.net.get_weights()
    run.engine.train(next(run.source.batches(0, 0, Strategy.shard)))
    run.engine.sync()
    step = [a - b for a, b in zip(program.net.get_weights(), before, strict=True)]
    assert np.sqrt(sum(np.sum(s**2) for s in step)) == pytest.approx(1e-3, rel=1e-3)
