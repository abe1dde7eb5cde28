"""The training loop: it learns, resumes exactly, keeps its last good state, tells what it does."""

import dataclasses
import json
import time

import keras
import numpy as np
import pytest

import keras_highway as kh
from keras_highway._support.files import atomic_write
from keras_highway.training import checkpoint
from keras_highway.training.data.samples import Shard
from keras_highway.training.data.source import open_source
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.loop import Run, train
from keras_highway.training.program import ImageProgram, whitening_kernel
from keras_highway.training.recipe import Recipe
from keras_highway.training.recipes import RECIPES, tiny
from keras_highway.training.run_folder import RunFolder, environment
from tests.checkpoints import arrays

TINY = dataclasses.replace(tiny(RECIPES["mnist10_w16"]), epochs=3)
DENSE = dataclasses.replace(tiny(RECIPES["highway_fc10"]), learning_rate=0.05)


def folder_of(path, recipe) -> RunFolder:
    return RunFolder(path, recipe, Strategy())


def program_of(recipe: Recipe, out):
    """A program and its run, outside of `train`."""
    source = open_source(recipe, None)
    program = ImageProgram(recipe, source, source.on_device())
    return program, Run(program, source, Strategy(), folder_of(out, recipe))


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


def test_phases_of_a_run(tmp_path):
    """Sizes, dropout and the whitened stem change what a step computes, as the recipe states."""
    recipe = dataclasses.replace(tiny(RECIPES["cifar10_19layer_fast"]), epochs=4, train_sizes=((0.5, 16),))
    recipe = dataclasses.replace(recipe, dropout_from=0.75)
    program, run = program_of(recipe, tmp_path)
    batch = next(run.source.batches(0, 0, Shard()))
    seen = []
    for epoch in range(4):
        program.begin_epoch(epoch)
        images = program._samples(keras.tree.map_structure(keras.ops.convert_to_tensor, batch), program._training_data)[
            0
        ]
        outputs = [keras.ops.convert_to_numpy(program._logits(images, training=True)) for _ in range(2)]
        seen.append((images.shape[1], not np.array_equal(*outputs)))
    assert seen == [(16, False), (16, False), (32, False), (32, True)]
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
    run.epoch(type("Never", (), {"made": False}))
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


class Killed(BaseException):
    """Stands for a process that dies."""


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
        patch.setattr(checkpoint, "atomic_write", dies)
        patch.setattr("keras_highway.training.run_folder.atomic_write", dies)
        patch.setattr("keras_highway._support.files.atomic_write", dies)
        with pytest.raises(Killed):
            train(TINY, None, tmp_path / "cut")
    resumed = train(TINY, None, tmp_path / "cut")
    assert resumed["values"] == whole["values"] and resumed["train_loss"] == whole["train_loss"]
    a, b = (arrays(tmp_path / name / "checkpoint.npz") for name in ("whole", "cut"))
    assert list(a) == list(b) and any(name.startswith("seed/") for name in a)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.mark.more
def test_full_disk_keeps_the_last_state(tmp_path, monkeypatch):
    train(TINY, None, tmp_path, until=1)
    before = (tmp_path / "checkpoint.npz").read_bytes()

    def fails(file, **_arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.np, "savez", fails)
        with pytest.raises(OSError, match="No space left"):
            train(TINY, None, tmp_path)
    assert (tmp_path / "checkpoint.npz").read_bytes() == before
    assert not list(tmp_path.glob(".partial*"))
    assert train(TINY, None, tmp_path)["epochs"] == 3


@pytest.mark.more
def test_until_stops_between_epochs_and_resumes(tmp_path):
    assert train(TINY, None, tmp_path, until=2) is None
    assert len(folder_of(tmp_path, TINY).rows()) == 2 and not (tmp_path / "result.json").exists()
    assert train(TINY, None, tmp_path)["epochs"] == 3


def test_infinite_loss_stops_names_the_step_and_keeps_the_last_state(tmp_path):
    bad = dataclasses.replace(DENSE, learning_rate=1e30, schedule="constant")
    with pytest.raises(FloatingPointError, match=r"loss became (nan|inf) in step \d+ of the run. No state was saved"):
        train(bad, None, tmp_path / "new")
    assert not (tmp_path / "new" / "checkpoint.npz").exists()
    late = dataclasses.replace(bad, schedule="step", milestones=(0.9,), warmup_epochs=1, warmup_rate=1e-3)
    with pytest.raises(FloatingPointError, match="The last good state is in"):
        train(late, None, tmp_path / "late")
    assert all(np.isfinite(value).all() for value in arrays(tmp_path / "late" / "checkpoint.npz").values())


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    program, run = program_of(DENSE, tmp_path)
    run.save(run.progress)
    before = run.folder.checkpoint.read_bytes()
    program.net.trainable_variables[0].assign(np.full(program.net.trainable_variables[0].shape, np.nan))
    with pytest.raises(FloatingPointError, match=r"net/.*kernel has values that are not finite"):
        run.save(run.progress)
    assert run.folder.checkpoint.read_bytes() == before


def test_folders_of_other_runs_and_broken_states_are_refused(tmp_path):
    folder_of(tmp_path, TINY)
    (tmp_path / "log.csv").write_text("epoch,train_loss\n1,2.0\n")
    with pytest.raises(ValueError, match="another recipe"):
        train(dataclasses.replace(TINY, seed=9), None, tmp_path)
    (tmp_path / "checkpoint.npz").write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match="not a checkpoint of a run"):
        train(TINY, None, tmp_path)
    other, _ = program_of(DENSE, tmp_path / "other")
    (tmp_path / "checkpoint.npz").unlink()
    values = checkpoint.finite_values(other.state, np.asarray)
    checkpoint.save(tmp_path / "checkpoint.npz", values, checkpoint.Progress(0, 0, np.zeros(4), 0, 0))
    with pytest.raises(ValueError, match="of another network or version"):
        train(TINY, None, tmp_path)


def test_processes_without_a_common_folder_are_refused(tmp_path):
    train(TINY, None, tmp_path, until=1)
    _, run = program_of(TINY, tmp_path)
    run.strategy.total = lambda own: own / 2  # another process at step 0
    run.strategy.replicas = 2
    with pytest.raises(ValueError, match="a file system that all of them share"):
        run.restore()


def test_a_second_process_in_the_same_folder_is_refused(tmp_path):
    first = folder_of(tmp_path, TINY)
    with pytest.raises(ValueError, match="Another process is training in"):
        folder_of(tmp_path, TINY)
    del first
    assert folder_of(tmp_path, TINY).rows() == []


@pytest.mark.more
def test_results_tell_of_every_machine_a_run_was_on(tmp_path, monkeypatch):
    train(TINY, None, tmp_path, until=1)
    monkeypatch.setattr("keras_highway.training.run_folder.accelerators", lambda: ["1 x GPU"])
    result = train(TINY, None, tmp_path)
    first, second = result["hardware_changes"]
    assert second == f"1 x GPU, {first}" and "commit_changes" not in result
    sessions = json.loads((tmp_path / "sessions.json").read_text())
    assert [session["from_step"] for session in sessions] == [0, 6]
    monkeypatch.setattr("keras_highway.training.run_folder.accelerators", lambda: ["8 x GPU"])
    weights = (tmp_path / "model.weights.h5").stat().st_mtime_ns
    assert train(TINY, None, tmp_path) == result  # nothing was left to do there
    assert json.loads((tmp_path / "result.json").read_text()) == result
    assert (tmp_path / "model.weights.h5").stat().st_mtime_ns == weights


@pytest.mark.parametrize("missing", ["result.json", "model.weights.h5"])
def test_what_a_kill_at_the_end_left_undone_is_done_and_told(missing, tmp_path, monkeypatch):
    result = train(TINY, None, tmp_path)
    (tmp_path / missing).unlink()
    monkeypatch.setattr("keras_highway.training.run_folder.accelerators", lambda: ["1 x GPU"])
    again = train(TINY, None, tmp_path)
    assert again["hardware_changes"][1].startswith("1 x GPU") and again["values"] == result["values"]
    assert (tmp_path / missing).exists()


@pytest.mark.parametrize(
    "moment", ["an epoch", *(pytest.param(m, marks=pytest.mark.slow) for m in ("the weights", "the result"))]
)
def test_a_result_stays_with_its_weights_until_both_are_replaced(moment, tmp_path, monkeypatch):
    """A run goes on after `finish` and dies: where a result is, the weights beside it are its own."""
    early = train(DENSE, None, tmp_path / "run", until=1, finish=True)
    weights, result = tmp_path / "run" / "model.weights.h5", tmp_path / "run" / "result.json"
    before = weights.read_bytes()

    def dies(*_args, **_kwargs):
        raise Killed

    where = {
        "an epoch": "loop.Run._end_epoch",
        "the weights": "program.weights_file.save",
        "the result": "loop.atomic_write_json",
    }[moment]
    with monkeypatch.context() as patch:
        patch.setattr(f"keras_highway.training.{where}", dies)
        with pytest.raises(Killed):
            train(DENSE, None, tmp_path / "run")
    assert (weights.read_bytes() == before) == (moment != "the result")
    assert (json.loads(result.read_text()) == early) if moment == "an epoch" else not result.exists()
    assert train(DENSE, None, tmp_path / "run")["epochs"] == 2 and weights.read_bytes() != before
    assert json.loads(result.read_text())["epochs"] == 2


@pytest.mark.parametrize(("epoch", "stays"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_result_does_not_outlive_a_run_that_begins_anew(epoch, stays, tmp_path):
    """Else it would be of as many epochs as the state in the end, and taken for its result."""
    folder = folder_of(tmp_path, DENSE)
    folder.result.write_text(json.dumps({"epochs": 2}))
    (tmp_path / "model.weights.h5").touch()
    folder.begin_session(epoch, 0)
    assert folder.result.exists() == stays


def test_without_git_the_commit_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("KERAS_HIGHWAY_COMMIT", "abc")
    assert environment(Strategy())["commit"] == "abc"


def test_a_log_that_lacks_epochs_is_refused(tmp_path):
    train(TINY, None, tmp_path, until=2)
    lines = (tmp_path / "log.csv").read_text().splitlines()
    (tmp_path / "log.csv").write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(ValueError, match=r"has 1 epochs and .* was saved after 2"):
        train(TINY, None, tmp_path)


def test_several_processes_agree_on_stopping(tmp_path):
    """A process that was asked waits for the step on which all ask each other; one that was not stops with it."""
    _, run = program_of(TINY, tmp_path)
    run.strategy.shard = Shard(0, 2)
    request, others = type("Requested", (), {"made": True}), []
    run.strategy.total = lambda own: own + sum(others)
    calm = type("Calm", (), {"made": False})
    run._agreed = (0, time.perf_counter())
    assert not run._should_stop(calm, 1)  # the first step tells how long steps are
    assert [run._should_stop(request, step) for step in (2, 19, 20)] == [False, False, True]
    assert not run._should_stop(calm, 20)
    others.append(1)
    assert run._should_stop(calm, 20) and not run._should_stop(calm, 21)


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


@pytest.mark.more
def test_mixed_precision_keeps_the_skip_stream_and_the_weights_in_float32(tmp_path):
    recipe = dataclasses.replace(tiny(RECIPES["highway110"]), precision="mixed_bfloat16", epochs=1, train_images=16)
    program, run = program_of(recipe, tmp_path)
    block = program.net.get_layer("stage1_block1")
    assert block.compute_dtype == "bfloat16" and block.skip_dtype == "float32"
    assert {v.dtype for v in program.net.trainable_variables} == {"float32"}
    run.epoch(type("Never", (), {"made": False}))
    assert np.isfinite(run.rows[0]["train_loss"])


def test_every_line_of_the_log_reports_what_a_reader_needs(tmp_path, capsys):
    train(dataclasses.replace(DENSE, epochs=1), None, tmp_path)
    out = capsys.readouterr().out
    for word in ("epoch   1/1", "loss", "train", "test", "rate", "images/s", "waiting", "min left"):
        assert word in out
    row = folder_of(tmp_path, dataclasses.replace(DENSE, epochs=1)).rows()[0]
    _, run = program_of(dataclasses.replace(DENSE, epochs=1), tmp_path / "other")
    assert run.line({key: float(value) for key, value in row.items()} | {"epoch": 1}) in out


def test_tensorboard_events_hold_the_log(tmp_path):
    tf = pytest.importorskip("tensorflow")  # reads what is written on any backend
    train(dataclasses.replace(DENSE, epochs=2), None, tmp_path)
    events = {}
    for file in (tmp_path / "tensorboard").iterdir():
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            for value in event.summary.value:
                events[value.tag, event.step] = value.simple_value
    rows = folder_of(tmp_path, dataclasses.replace(DENSE, epochs=2)).rows()
    for row in rows:
        assert events["train_loss", int(row["step"])] == pytest.approx(float(row["train_loss"]), rel=1e-6)
        assert events["test_accuracy", int(row["step"])] == pytest.approx(float(row["test_accuracy"]), rel=1e-6)


def test_steps_are_compiled_where_expected():
    assert Strategy().jit_compile is (keras.backend.backend() == "jax")  # no GPU here: XLA is slower for TensorFlow
    strategy = Strategy()
    strategy.jit_compile = True
    program = ImageProgram(DENSE, open_source(DENSE, None), open_source(DENSE, None).on_device())
    engine = strategy.engine(program)
    sums = np.asarray(engine.train(next(open_source(DENSE, None).batches(0, 0, Strategy.shard))))
    assert sums[-1] == DENSE.batch_size  # augmentation, network and update: one XLA program
    assert engine.jit_compile is (keras.backend.backend() != "torch")
