"""Gates during training: what is recorded is what NumPy makes of the traces, at the right steps, on any strategy."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from miniatures import batch, miniature

from keras_highway._support.event_file import EventFile
from keras_highway.analysis import GateRow, GateStats, trace

ROOT = Path(__file__).parents[1]


def fitted(stats, model=None):
    """A miniature after two epochs of three steps of `fit`, with the callback."""
    model = miniature("dense_stack") if model is None else model
    model.compile(keras.optimizers.SGD(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = batch(model, 12), np.arange(12) % 10
    model.fit(x, y, batch_size=4, epochs=2, callbacks=[stats], verbose=0)
    return model


def read(folder) -> list[GateRow]:
    with (folder / "gates.csv").open(newline="") as file:
        return [
            GateRow(int(r["epoch"]), int(r["step"]), r["block"], *(float(r[k]) for k in GateRow._fields[3:]))
            for r in csv.DictReader(file)
        ]


def rows_of(model, x, epoch, step) -> list[GateRow]:
    """The rows by NumPy, from a trace."""
    rows = []
    for name, entry in trace(model, x).items():
        t = entry.t.astype("float64")
        rows.append(GateRow(epoch, step, name, t.mean(), t.var(), ((t < 0.01) | (t > 0.99)).mean(), (t < 0.01).mean()))
    return rows


def agree(rows, others, atol=2e-6):
    assert [row[:3] for row in rows] == [row[:3] for row in others]
    np.testing.assert_allclose([row[3:] for row in rows], [row[3:] for row in others], atol=atol)


@pytest.mark.parametrize("family", ["dense_stack", "conv_stack"])
def test_records_are_those_of_the_traces(tmp_path, family):
    model = miniature(family)
    x = batch(model, 5)
    stats = GateStats(x, tmp_path)
    before = rows_of(model, x, 0, 0)
    fitted(stats, model)
    after = rows_of(model, x, 2, 6)
    rows = read(tmp_path)
    assert rows == stats.rows
    agree(rows[: len(before)], before)
    agree(rows[-len(after) :], after)
    assert [(row.epoch, row.step) for row in rows if row.block == "stage1_block1"] == [(0, 0), (1, 3), (2, 6)]
    means = {row.step: row.mean for row in rows if row.block == "stage1_block1"}
    assert len(set(means.values())) == 3  # the net learns, and each record is of its time


def test_steps_are_those_of_the_optimizer_where_it_sums_gradients_of_several_batches(tmp_path):
    model = miniature("dense_stack")
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = batch(model, 16), np.arange(16) % 10
    stats = GateStats(x[:3], tmp_path, every=2, blocks="stage1_block1")
    model.fit(x, y, batch_size=2, epochs=3, callbacks=[stats], verbose=0)  # four steps an epoch
    assert [row.step for row in stats.rows] == [0, 2, 4, 6, 8, 10, 12]
    more = GateStats(x[:3], tmp_path, every=2, blocks="stage1_block1", append=True)
    model.fit(x, y, batch_size=2, epochs=1, callbacks=[more], verbose=0)
    assert [row.step for row in read(tmp_path)] == [0, 2, 4, 6, 8, 10, 12, 14, 16]


@pytest.mark.parametrize("kind", ["plain", "scaled", "summed"])
@pytest.mark.parametrize("at_once", [1, 2])
def test_steps_between_records_whatever_the_optimizer(tmp_path, kind, at_once):
    if keras.backend.backend() == "torch" and at_once > 1:
        pytest.skip("Keras takes one step at once on PyTorch")
    model = miniature("dense_stack")
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2 if kind == "summed" else None)
    if kind == "scaled":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=2.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, steps_per_execution=at_once)
    stats = GateStats(batch(model, 3), tmp_path, every=2, blocks="stage1_block1")
    model.fit(batch(model, 24), np.arange(24) % 10, batch_size=2, epochs=2, callbacks=[stats], verbose=0)
    assert [row.step for row in stats.rows] == list(range(0, 13 if kind == "summed" else 25, 2))


def test_saturated_gates_are_counted_on_both_sides(tmp_path):
    model = miniature("dense_stack", gating="full")
    block = model.get_layer("stage1_block1")
    block.transform_gate.kernel.assign(np.zeros(block.transform_gate.kernel.shape))
    block.transform_gate.bias.assign([-5.0, -4.0, 0.0, 4.0, 5.0, 6.0])  # sigmoid(±4) is 0.018 and 0.982: not saturated
    stats = GateStats(batch(model, 3), tmp_path, blocks="stage1_block1", tensorboard=False)
    stats.set_model(model)
    (row,) = stats.record(4, 70)
    assert row[:3] == (4, 70, "stage1_block1")
    assert row.saturated == pytest.approx(3 / 6) and row.shut == pytest.approx(1 / 6)
    assert read(tmp_path) == [row] and not list(tmp_path.glob("events*"))


@pytest.mark.parametrize(
    ("every", "steps"),
    [(1, [0, 1, 2, 3, 4, 5, 6]), (2, [0, 2, 4, 6]), (3, [0, 3, 6]), (4, [0, 4]), (7, [0]), (np.int64(2), [0, 2, 4, 6])],
)
def test_every_so_many_steps(tmp_path, every, steps):
    x = batch(miniature("dense_stack"), 2)
    stats = GateStats(x, tmp_path, every=every, tensorboard=False)
    model = fitted(stats)
    assert [row.step for row in stats.rows if row.block == "stage1_block1"] == steps
    assert all(row.epoch == row.step // 3 for row in stats.rows)
    if steps[-1] == 6:
        agree(stats.rows[-len(rows_of(model, x, 2, 6)) :], rows_of(model, x, 2, 6))


def test_steps_are_counted_beyond_numpys_small_numbers(tmp_path):
    model = miniature("dense_stack")
    stats = GateStats(batch(model, 2), tmp_path, every=np.int8(100), tensorboard=False)
    model.compile("sgd", "sparse_categorical_crossentropy")
    model.fit(batch(model, 301), np.zeros(301), batch_size=1, callbacks=[stats], verbose=0)
    assert [row.step for row in stats.rows[::3]] == [0, 100, 200, 300]


@pytest.mark.slow
def test_training_is_the_same_with_and_without(tmp_path):
    models = []
    for every in (None, "epoch", 1):
        keras.utils.set_random_seed(3)  # of the weights, and of the order of the samples
        model = miniature("dense_stack")
        x = batch(model, 2)
        models.append(fitted(GateStats(x, tmp_path, every=every) if every else keras.callbacks.Callback(), model))
    for other in models[1:]:
        for a, b in zip(other.get_weights(), models[0].get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_a_resumed_run_appends_to_its_file(tmp_path):
    x = batch(miniature("dense_stack"), 2)
    fitted(GateStats(x, tmp_path))
    again = GateStats(x, tmp_path, append=True)
    fitted(again)
    # This optimizer has taken no step yet, so steps 3 and 6 are taken again: their rows are those of the second fit.
    rows = read(tmp_path)
    assert [row.step for row in rows if row.block == "stage1_block2"] == [0, 3, 6]
    assert rows[3:] == again.rows
    assert len((tmp_path / "gates.1.csv").read_text().splitlines()) == 1 + 3 * 3  # nothing is lost for good
    fitted(GateStats(x, tmp_path))
    assert len(read(tmp_path)) == 3 * 3


@pytest.mark.parametrize("every", ["epoch", 1])
def test_steps_taken_again_after_a_kill_are_recorded_once(tmp_path, every):
    model = miniature("dense_stack")
    x = batch(model, 2)
    fitted(GateStats(x, tmp_path, every=every), model)
    whole = read(tmp_path)
    with (tmp_path / "gates.csv").open("a") as file:
        file.write("2,8,stage1_block1,0.1")  # the process was killed here; its state is that of step 6
    again = GateStats(x, tmp_path, every=every, append=True, tensorboard=False)
    model.fit(
        batch(model, 12), np.arange(12) % 10, batch_size=4, epochs=3, initial_epoch=2, callbacks=[again], verbose=0
    )
    rows = read(tmp_path)
    assert rows == [*whole, *again.rows]
    assert [row.step for row in again.rows[::3]] == ([9] if every == "epoch" else [7, 8, 9])
    assert len({(row.step, row.block) for row in rows}) == len(rows)


def test_files_that_are_empty_or_others(tmp_path):
    x = batch(miniature("dense_stack"), 2)
    (tmp_path / "gates.csv").write_text("")
    fitted(GateStats(x, tmp_path, append=True, tensorboard=False))
    assert {row.step for row in read(tmp_path)} >= {3, 6}
    (tmp_path / "gates.csv").write_text("mine,2\n1,2\n")
    with pytest.raises(ValueError, match=r"gates.csv is not a file of GateStats"):
        fitted(GateStats(x, tmp_path, append=True, tensorboard=False))
    assert (tmp_path / "gates.csv").read_text() == "mine,2\n1,2\n"


def test_tensorboard_reads_what_is_written(tmp_path):
    tf = pytest.importorskip("tensorflow")
    stats = GateStats(batch(miniature("dense_stack"), 2), tmp_path)
    fitted(stats)
    (path,) = tmp_path.glob("events.out.tfevents.*")
    iterator = tf.compat.v1.train.summary_iterator(str(path))  # checks the checksums
    events = [event for event in iterator if event.summary.value]
    actual = {(event.step, value.tag): value.simple_value for event in events for value in event.summary.value}
    expected = {
        (row.step, f"gates_{name}/{row.block}"): getattr(row, name)
        for row in stats.rows
        for name in ("mean", "variance", "saturated", "shut")
    }
    assert actual.keys() == expected.keys()
    assert all(actual[key] == np.float32(expected[key]) for key in expected)


def test_event_files_hold_large_steps_and_long_texts(tmp_path):
    tf = pytest.importorskip("tensorflow")
    file = EventFile(tmp_path / "new")
    file.write(3_000_000_000, {"x" * 300: -1.5})
    events = list(tf.compat.v1.train.summary_iterator(str(file.path)))
    assert events[0].file_version == "brain.Event:2" and events[1].step == 3_000_000_000
    assert events[1].summary.value[0].tag == "x" * 300 and events[1].summary.value[0].simple_value == -1.5


@pytest.mark.slow
def test_rows_under_two_mirrored_replicas_are_those_of_one_device(tmp_path):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("tf.distribute needs KERAS_BACKEND=tensorflow")
    done = subprocess.run(
        [sys.executable, "-m", "tests.gate_stats_worker", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    after = np.load(tmp_path / "weights.npz")
    model = miniature("conv_net", blocks=(1, 1))
    model.set_weights([after[f"arr_{i}"] for i in range(len(after.files))])
    inside, outside = read(tmp_path / "inside"), read(tmp_path / "outside")
    assert [row.step for row in inside[::2]] == [0, 3, 6] and inside[0].mean != inside[-2].mean
    agree(inside[-2:], rows_of(model, batch(model, 5), 2, 6))
    assert [row.step for row in outside[::2]] == [6, 8, 10, 12]
    agree(outside[:2], [row._replace(epoch=0) for row in inside[-2:]])


def test_wrong_arguments(tmp_path):
    x = batch(miniature("dense_stack"), 2)
    for every in ("step", 0, True, 2.5):
        with pytest.raises(ValueError, match="'epoch' or a positive number of steps"):
            GateStats(x, tmp_path, every=every)
    with pytest.raises(ValueError, match=r"gating='residual'.*constant 1"):
        GateStats(x, tmp_path).set_model(miniature("dense_stack", gating="residual"))
    with pytest.raises(ValueError, match="Did you mean 'stage1_block1'"):
        GateStats(x, tmp_path, blocks=["stage1_blok1"]).set_model(miniature("dense_stack"))
    with pytest.raises(ValueError, match="batch axis"):
        GateStats(x[0], tmp_path).set_model(miniature("dense_stack"))
    with pytest.raises(ValueError, match="no model to measure"):
        GateStats(x, tmp_path).record(0, 0)
