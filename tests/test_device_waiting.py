"""Waiting for data is time in which the device has nothing to compute, not time in which the program waits."""

import threading
import time

import numpy as np
import pytest

from keras_highway.training.checkpoint import Progress
from keras_highway.training.meter import Meter


class Step:
    """What a step will return: its value waits until the device is done with it."""

    def __init__(self, seconds=0.0, error=None):
        self._done, self._error = threading.Event(), error
        threading.Timer(seconds, self._done.set).start()

    def __array__(self, dtype=None, copy=None):
        self._done.wait(10)
        if self._error:
            raise self._error
        return np.array([1.0, 1.0, 1.0], dtype)


@pytest.fixture
def meter():
    made = Meter(Progress(0, 0, np.zeros(3), 0.0, 0.0), 1, 10, 2, "images", ("loss", "accuracy", "count"), dict)
    yield made
    made.close()


def decoded(*seconds):
    for pause in seconds:
        time.sleep(pause)
        yield "batch"


def test_a_slow_loader_beside_a_slower_device_is_not_waited_for(meter):
    batches = decoded(0.0, 0.2)
    meter.wait_for(batches)
    meter.add(Step(0.5))
    meter.wait_for(batches)
    assert meter.waited < 0.1
    meter.read()
    assert meter.seconds > 0.45


def test_the_rest_of_the_loaders_time_is_waiting(meter):
    batches = decoded(0.1, 0.5)
    meter.wait_for(batches)
    assert meter.waited >= 0.1
    meter.add(Step(0.2))
    meter.wait_for(batches)
    assert 0.3 <= meter.waited < 0.55  # 0.1, and of 0.5 what the step did not take


def test_an_error_of_a_step_reaches_who_reads_it(meter):
    meter.add(Step(error=RuntimeError("out of memory")))
    with pytest.raises(RuntimeError, match="out of memory"):
        meter.read()
    meter.close()


def test_no_thread_is_left(meter):
    before = threading.active_count()
    meter.add(np.array([1.0, 1.0, 1.0]))
    meter.read()
    meter.close()
    assert threading.active_count() <= before


def test_a_loader_that_keeps_the_interpreter_busy_is_waited_for(meter):
    """Where steps are done at once no other thread has a turn to note it."""

    def busy():
        for _ in range(50):
            end = time.perf_counter() + 0.003
            while time.perf_counter() < end:
                pass
            yield "batch"

    batches = busy()
    while meter.wait_for(batches) is not None:
        meter.add(np.array([1.0, 1.0, 1.0]))
    assert meter.waited >= 0.14


def test_a_step_that_does_not_end_does_not_keep_the_program(meter):
    start = time.perf_counter()
    meter.add(Step(4.0))
    meter.close()
    assert time.perf_counter() - start < 3
