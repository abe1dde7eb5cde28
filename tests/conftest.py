"""Fixtures of the whole test suite."""

import os
import time
import types
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before the first import of TensorFlow
# Tiny models spend their time in XLA's compiler: on JAX it optimizes nothing, and what one test, worker or process
# has compiled, the others load.
if os.environ.get("KERAS_BACKEND") == "jax":
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import hypothesis
import pytest
from core_cases import is_more

hypothesis.settings.register_profile("no_deadline", deadline=None)  # the first example may trace and compile
hypothesis.settings.load_profile("no_deadline")


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items):
    for item in items:
        if is_more(item):
            item.add_marker(pytest.mark.more)


def pytest_runtest_logreport(report):
    _note_failure(report)


def pytest_collectreport(report):
    _note_failure(report)


def _note_failure(report):
    """For `.ci/run`, which may cut a run off before pytest says what failed: a crashed process stops no run."""
    if report.failed and (path := os.environ.get("KERAS_HIGHWAY_FAILURES")):
        with open(path, "a") as file:
            file.write(f"{report.nodeid}\n")


@pytest.fixture(autouse=True)
def _seed():
    import keras  # here, for the process that only gives tests to workers needs no backend

    keras.utils.set_random_seed(1)


@pytest.fixture(scope="session")
def computes_channels_first():
    """TensorFlow convolves channels first on a CPU by oneDNN alone, which it turns on where there is AVX-512 VNNI."""
    import keras

    try:
        keras.layers.Conv2D(1, 1, data_format="channels_first")(keras.ops.zeros((1, 1, 2, 2)))
    except Exception as error:
        if "only supports the NHWC" not in str(error):
            raise
        pytest.skip("TensorFlow convolves channels last alone on this processor: set TF_ENABLE_ONEDNN_OPTS=1")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the data sets, for the tests that need real images."""
    folder = os.environ.get("KERAS_HIGHWAY_DATA")
    if not folder:
        pytest.skip("needs real data: set KERAS_HIGHWAY_DATA to the folder that holds the data sets")
    if not Path(folder).is_dir():
        pytest.skip(f"KERAS_HIGHWAY_DATA={folder!r} is not a folder")
    return Path(folder)


@pytest.fixture
def hub_table(tmp_path, monkeypatch):
    """The table of what is on the Hub, in a checkout of its own."""
    from keras_highway.weights import registry as weights

    (tmp_path / "checkout" / "keras_highway" / "weights").mkdir(parents=True)
    (tmp_path / "checkout" / "pyproject.toml").touch()
    path = tmp_path / "checkout" / "keras_highway" / "weights" / "hub.json"
    path.write_text("{}\n")
    monkeypatch.setattr(weights, "HUB_TABLE", path)
    weights.reread()
    yield path
    monkeypatch.undo()
    weights.reread()


@pytest.fixture
def fake_hub(tmp_path, monkeypatch):
    """A Hub on 127.0.0.1 that huggingface_hub talks to, with an empty cache; it does not wait between attempts."""
    from fake_hub import FakeHub
    from huggingface_hub import constants, file_download
    from huggingface_hub.utils import _http, close_session

    hub = FakeHub()
    settings = {
        "ENDPOINT": hub.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": hub.url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_CACHE": str(tmp_path / "home" / "hub"),
        "HF_HUB_DISABLE_XET": True,  # a protocol of its own, of binary chunks; the Hub also speaks LFS
        "HF_HUB_DISABLE_PROGRESS_BARS": True,
        "HF_HUB_DOWNLOAD_TIMEOUT": 5.0,  # the tests of faults have a shorter one
        "HF_HUB_OFFLINE": False,
        "HF_TOKEN_PATH": str(tmp_path / "no_token"),
    }
    for name, value in settings.items():
        monkeypatch.setattr(constants, name, value)
    for module in (file_download, _http):
        monkeypatch.setattr(module, "time", types.SimpleNamespace(**{**vars(time), "sleep": lambda seconds: None}))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    yield hub
    hub.close()
    close_session()
