"""A run refuses to resume with other data, and processes with different data are refused."""

import contextlib
import dataclasses
import errno
import hashlib
import itertools
import os
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from PIL import Image

from keras_highway.layers import HighwayDenseStack
from keras_highway.training import shards, train
from keras_highway.training.data.samples import Shard, fingerprint_of
from keras_highway.training.data.source import open_source
from keras_highway.training.data.synthetic import synthetic_dataset
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.loop import train as train_recipe
from keras_highway.training.optimizers import DecayedLamb
from keras_highway.training.program import Program
from keras_highway.training.recipe import changed
from keras_highway.training.recipes import RECIPES
from keras_highway.training.runs import run as run_module
from keras_highway.training.runs.meter import Device
from keras_highway.training.runs.run import Run
from keras_highway.training.runs.run_folder import RunFolder
from keras_highway.training.tasks import training_of
from keras_highway.training.tiny import tiny
from tests.miniatures import numpy

DENSE = changed(tiny(RECIPES["highway_fc10"]), data="mnist", epochs=2)
TEXT = dataclasses.replace(
    tiny(RECIPES["charlm_small_coupled"]),
    data="ptb",
    epochs=2,
    precision="float32",
    train_tokens=None,
    test_tokens=None,
)


def mnist_in(folder: Path, order=slice(None), pixels: int = 0) -> Path:
    """Made-up images in an order; `pixels` is added to them."""
    data = synthetic_dataset("synthetic_mnist")
    folder.mkdir()
    train_set = {"x_train": data.x_train[order] + np.uint8(pixels), "y_train": data.y_train[order]}
    np.savez(folder / "mnist.npz", **train_set, x_test=data.x_test, y_test=data.y_test)
    return folder


@pytest.mark.parametrize("other", [{"order": slice(None, None, -1)}, {"pixels": 1}])
def test_a_run_does_not_go_on_with_images_in_another_order_or_with_others(tmp_path, other):
    """Those that are held out would be others, and the run has been trained on some of them."""
    recipe = changed(DENSE, holdout_images=50)
    folder, run = mnist_in(tmp_path / "a"), tmp_path / "run"
    assert train_recipe(recipe, folder, run, until=1) is None
    msg = r"begun with other data: fingerprint \w{12}, now fingerprint \w{12}, of as many steps: .*another order\. Give"
    with pytest.raises(ValueError, match=msg):
        train_recipe(recipe, mnist_in(tmp_path / "b", **other), run)
    assert train_recipe(recipe, mnist_in(tmp_path / "copy"), run)["epochs"] == 2


def test_more_images_are_told_by_their_number(tmp_path):
    with contextlib.closing(RunFolder(tmp_path, DENSE.to_dict(), Strategy())) as folder:
        facts = {"class_names": [], "fingerprint": 64 * "a", "steps_per_epoch": 10}
        folder.check_data(facts)
        folder.log.write_text("epoch,train_loss\n1,2.0\n")
        with pytest.raises(ValueError, match=r"other data: steps_per_epoch 10, now steps_per_epoch 12\. Give"):
            folder.check_data({**facts, "fingerprint": 64 * "b", "steps_per_epoch": 12})


def test_fingerprints_stay_what_they_are(tmp_path):
    """Every run that has begun is refused where they change."""
    arrays = np.arange(12, dtype=np.uint8).reshape(3, 2, 2), np.array([0, 1, 2], np.int64)
    ours = hashlib.sha256()
    for array, text in zip(arrays, ("|u1(3, 2, 2)", "<i8(3,)"), strict=True):
        ours.update(text.encode() + array.tobytes())
    assert fingerprint_of(*arrays) == ours.hexdigest()
    assert fingerprint_of("a", "b") == hashlib.sha256(b"ab").hexdigest()
    images, labels = (np.arange(40 * 784) % 251).reshape(40, 28, 28).astype(np.uint8), np.arange(40) % 10
    np.savez(tmp_path / "mnist.npz", x_train=images, y_train=labels, x_test=images[:9], y_test=labels[:9])
    assert open_source(changed(DENSE, train_images=30), tmp_path).fingerprint.startswith("66d55aaf580580464602bd9e")
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(200 * "one two three four\n")
    assert training_of(TEXT.task).open_source(TEXT, tmp_path).fingerprint.startswith("8390e60f057ddc31f1c6497a")


@pytest.mark.more
def test_a_language_model_does_not_go_on_with_words_in_another_order(tmp_path):
    """They are numbered as they come: each would have the embedding of another."""
    halves = [200 * "one two three four\n", 200 * "five six one three\n"]
    for name, train_text in (("a", halves), ("b", halves[::-1])):
        (tmp_path / name).mkdir()
        for split, text in (("train", train_text), ("valid", halves), ("test", halves)):
            (tmp_path / name / f"{split}.txt").write_text("".join(text))
    assert train_recipe(TEXT, tmp_path / "a", tmp_path / "run", until=1) is None
    with pytest.raises(ValueError, match="begun with other data: fingerprint"):
        train_recipe(TEXT, tmp_path / "b", tmp_path / "run")


def test_a_folder_and_its_shards_are_the_same_data(tmp_path):
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            (tmp_path / "in" / split / name).mkdir(parents=True)
            for i in range(2):
                Image.new("RGB", (8, 8), (200, 10, 10)).save(tmp_path / "in" / split / name / f"{i}.jpg")
    shards.write(tmp_path / "in", tmp_path / "shards", images=2)
    recipe = dataclasses.replace(RECIPES["resnet50_a2"], batch_size=2)
    folder, sharded = (open_source(recipe, tmp_path / name).fingerprint for name in ("in", "shards"))
    assert folder == sharded
    Image.new("RGB", (8, 8)).save(tmp_path / "in" / "train" / "cat" / "2.jpg")
    assert open_source(recipe, tmp_path / "in").fingerprint != folder


def test_hosts_that_number_classes_otherwise_are_refused(tmp_path, monkeypatch):
    """Their labels may be the same numbers."""
    asked, recipe = [], changed(RECIPES["resnet50_a2"], batch_size=8, micro_batches=1)
    monkeypatch.setattr(Strategy, "check_same", lambda self, fingerprint, what: asked.append(fingerprint) or stop())

    def stop():
        raise ValueError("enough")

    for names in (("cat", "dog"), ("dog", "wolf"), ("cat", "dog")):
        for split, name in itertools.product(("train", "val"), names):
            (tmp_path / "in" / split / name).mkdir(parents=True)
            for i in range(4):
                Image.new("RGB", (8, 8)).save(tmp_path / "in" / split / name / f"{i}.jpg")
        with pytest.raises(ValueError, match="enough"):
            train_recipe(recipe, tmp_path / "in", tmp_path / "run")
        shutil.rmtree(tmp_path / "in")
    assert asked[0] == asked[2] != asked[1]


def together(fingerprints: list[str]) -> list[str | None]:
    """What `check_same` says to each of as many processes, here threads that sum over a barrier."""
    barrier, numbers, said = threading.Barrier(len(fingerprints)), [0] * len(fingerprints), {}

    def process(index: int) -> None:
        strategy = Strategy()
        strategy.shard, strategy.replicas = Shard(index, len(fingerprints)), len(fingerprints)

        def total(number):
            numbers[index] = number
            barrier.wait(10)
            result = sum(numbers)
            barrier.wait(10)
            return result

        strategy.total = total
        try:
            said[index] = strategy.check_same(fingerprints[index], "data='mnist'")
        except ValueError as error:
            said[index] = str(error)

    threads = [threading.Thread(target=process, args=(i,)) for i in range(len(fingerprints))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return [said[i] for i in range(len(fingerprints))]


def test_processes_with_different_data_are_refused_all_of_them():
    """Also one whose number is the mean of all, as that of the second here."""
    one, two, three = (digit + 63 * "0" for digit in "123")
    assert together([one, one, one]) == [None, None, None]
    for others in ([one, two, three], [one, one, two], ["0" * 14 + "1" + 49 * "0", 64 * "0", 64 * "0"]):
        assert all(said and "different data='mnist'" in said and "the same" in said for said in together(others))
    assert Strategy().check_same(one, "a single process") is None


@pytest.mark.skipif(os.name != "posix", reason="locks are those of POSIX")
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EPERM])
def test_where_a_file_system_has_no_locks_a_run_says_so_and_goes_on(number, tmp_path, monkeypatch, capsys):
    def refused(*_):
        raise OSError(number, "no locks here")

    monkeypatch.setattr("fcntl.flock", refused)
    folder = RunFolder(tmp_path, DENSE.to_dict(), Strategy())
    assert (tmp_path / "recipe.json").exists()
    assert f"{tmp_path} is on a file system without locks (no locks here)" in capsys.readouterr().err
    folder.close()


def test_a_state_that_cannot_be_read_just_now_is_not_called_damaged(tmp_path, monkeypatch, capsys):
    folder, run = mnist_in(tmp_path / "a"), tmp_path / "run"
    train_recipe(DENSE, folder, run, until=1)
    open_ = Path.open

    def away(path, *args, **kwargs):
        if path.name == "checkpoint.npz":
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return open_(path, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", away)
        with pytest.raises(SystemExit) as ended, train.errors_in_a_line():
            train_recipe(DENSE, folder, run)
    said = capsys.readouterr().err
    assert ended.value.code == 1 and "Stale file handle" in said and "not a checkpoint" not in said


def test_a_data_set_that_cannot_be_read_just_now_is_not_called_wrong(tmp_path, monkeypatch):
    folder = mnist_in(tmp_path / "a")

    def away(*_, **__):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("zipfile.ZipFile.open", away)
    with pytest.raises(OSError, match="Input/output error"):
        open_source(DENSE, folder)


@pytest.mark.parametrize("until", [1, None])
def test_a_finished_run_whose_state_is_gone_is_not_trained_anew(tmp_path, until):
    folder, run = mnist_in(tmp_path / "a"), tmp_path / "run"
    train_recipe(DENSE, folder, run)
    (run / "checkpoint.npz").unlink()
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    with pytest.raises(ValueError, match=r"a run of 2 epochs and no checkpoint\.npz: to go on, put that back"):
        train_recipe(DENSE, folder, run, until=until)
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


def test_a_run_that_was_killed_between_its_first_line_and_its_first_state_begins_anew(tmp_path):
    folder, run = mnist_in(tmp_path / "a"), tmp_path / "run"
    train_recipe(DENSE, folder, run, until=1)
    (run / "checkpoint.npz").unlink()
    assert train_recipe(DENSE, folder, run)["epochs"] == 2


@pytest.mark.parametrize("decay_vectors", [False, True])
def test_lamb_has_a_ratio_for_each_layer_of_a_stack(decay_vectors):
    """As for as many layers without a scan; the gate of a tied stack is one layer's."""
    stack, draw = HighwayDenseStack(3, gate="tied"), np.random.default_rng(0)
    stack.build((None, 4))
    weights, parts = stack.trainable_variables, []
    for weight in weights:
        name = "bias" if "bias" in weight.name else "kernel"
        layers = weight.shape[0] if len(weight.shape) == (2 if name == "bias" else 3) else 1
        value = draw.normal(size=(layers, *weight.shape[-1 if name == "bias" else -2 :]))
        value *= (10.0 ** np.arange(layers)).reshape(-1, *[1] * (value.ndim - 1))  # layers of different norms
        weight.assign(value.reshape(weight.shape))
        parts.append([keras.Variable(part, name=name) for part in value])
    assert sorted(map(len, parts)) == [1, 1, 3, 3]
    gradients = [draw.normal(size=weight.shape).astype("float32") for weight in weights]
    together = DecayedLamb(0.01, 0.1, decay_vectors)
    together.build(weights)
    together.apply([keras.ops.convert_to_tensor(gradient) for gradient in gradients])
    alone = DecayedLamb(0.01, 0.1, decay_vectors)
    alone.build([part for several in parts for part in several])
    rows = [
        row for g, several in zip(gradients, parts, strict=True) for row in g.reshape(len(several), *several[0].shape)
    ]
    alone.apply([keras.ops.convert_to_tensor(row) for row in rows])
    for weight, several in zip(weights, parts, strict=True):
        np.testing.assert_allclose(
            numpy(weight).reshape(-1), np.stack([numpy(p) for p in several]).reshape(-1), rtol=1e-5
        )


def test_only_a_stacks_own_names_have_a_ratio_for_each_layer_and_scalars_do_not_decay():
    def moved(name, shape, gradient=1.0):
        values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        variable, optimizer = keras.Variable(values, name=name), DecayedLamb(0.1, 0.5)
        optimizer.build([variable])
        optimizer.apply([keras.ops.full(shape, gradient)])
        return numpy(variable)

    for name, shape in (("transform_weight", (4, 4)), ("transform_kernel_of_mine", (2, 3, 3))):
        np.testing.assert_array_equal(moved(name, shape), moved("kernel", shape))
    assert np.abs(moved("transform_kernel", (2, 3, 3)) - moved("kernel", (2, 3, 3))).max() > 1e-3
    assert moved("scale", (), 0.0) == np.random.default_rng(0).normal(size=()).astype(np.float32)


@pytest.mark.parametrize("start", [0, 361])
def test_slow_processes_ask_each_other_after_every_step(tmp_path, start):
    """Twenty steps of seven seconds would outlast the minute that a supervisor gives them."""
    recipe = changed(tiny(RECIPES["highway_fc10"]), epochs=1)
    source = open_source(recipe, None)
    program = Program(recipe, source, source.on_device())
    with contextlib.closing(RunFolder(tmp_path, recipe.to_dict(), Strategy())) as folder:
        run = Run(program, source, Strategy(), folder)
        run.strategy.shard = Shard(0, 2)
        totals = []
        run.strategy.total = lambda number: totals.append(number) or number
        calm, asked = SimpleNamespace(made=False), SimpleNamespace(made=True)
        run._agreed = (start, time.perf_counter() - 7)  # as before the first step, here of seven seconds
        assert not run._should_stop(calm, start + 1) and len(totals) == 1
        run._agreed = (start + 1, run._agreed[1] - 7)
        assert run._should_stop(asked, start + 2) and not run._should_stop(calm, start + 3) and len(totals) == 3
        late = -(start + 4) // 20 * -20
        assert not run._should_stop(asked, late - 1) and run._should_stop(asked, late)  # the last one was fast


class Slow:
    """The sums of a step that takes seven seconds, and is given back before it is done."""

    def __init__(self, sums, clock):
        self._sums, self._clock, self._done = sums, clock, False

    def __array__(self, dtype=None, copy=None):
        self._clock.now += 0.0 if self._done else 7.0
        self._done = True
        return np.asarray(self._sums, dtype)


def test_steps_that_are_given_back_before_they_are_done_are_slow_ones(tmp_path, monkeypatch):
    """In every epoch: the quick test at the end of one says nothing about the next."""
    recipe = changed(tiny(RECIPES["highway_fc10"]), epochs=2)
    source = open_source(recipe, None)
    program = Program(recipe, source, source.on_device())
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(Device, "watch", lambda self, sums: None)  # whose thread would wait for the steps
    with contextlib.closing(RunFolder(tmp_path, recipe.to_dict(), Strategy())) as folder:
        run = Run(program, source, Strategy(), folder)
        train_step, totals, calm = run.engine.train, [], SimpleNamespace(made=False)
        monkeypatch.setattr(run.engine, "train", lambda batch: Slow(train_step(batch), clock))
        monkeypatch.setattr(run_module.time, "perf_counter", lambda: clock.now)
        monkeypatch.setattr(run, "_should_stop", lambda stop, step=0: asked(run, stop, step))

        def asked(run, stop, step):
            """As one of two processes, whose batches are whole."""
            run.strategy.shard, run.strategy.total = Shard(0, 2), lambda number: totals.append(number) or number
            try:
                return Run._should_stop(run, stop, step)
            finally:
                run.strategy.shard = Shard(0, 1)

        for epoch in range(2):
            run.epoch(calm)
            assert len(totals) == (epoch + 1) * (program.steps_per_epoch + 1) and program.steps_per_epoch > 1
        assert clock.now == 2 * 7.0 * program.steps_per_epoch
