"""The Hub's cache as others make and share it, files that this version cannot read, and what timm's configs state."""

import errno
import hashlib
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import fake_hub as fake
import numpy as np
import pytest
from safetensors.numpy import save
from test_hub import FILE, NAME, VARIANT, X, flipped, published, trained  # noqa: F401  the last two: fixtures
from test_timm import CONFIG

import keras_highway as kh
from keras_highway._support.files import may_pass
from keras_highway.weights import files as weights_file
from keras_highway.weights import torch_files
from keras_highway.weights.sources import resolve
from keras_highway.weights.torch_files import read_config, read_safetensors

LABELS = [f"bird{i}" for i in range(10)]


def blobs(cache: Path) -> list[Path]:
    return sorted(cache.glob("models--*/blobs/*"))


@pytest.fixture
def offline(monkeypatch):
    """Turns huggingface_hub's offline mode on, from the call on."""
    return lambda: monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def farm(published, tmp_path, monkeypatch, offline):  # noqa: F811
    """A cache made of links to the files of another one, as `cp -rs` makes it."""
    kh.load(f"hf://{NAME}")
    shared, copy = tmp_path / "home" / "hub", tmp_path / "farm"
    for path in [p for p in shared.rglob("*") if ".locks" not in p.parts]:
        target = copy / path.relative_to(shared)
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.symlink_to(path)
    (ref,) = copy.glob("models--*/refs/main")
    ref.unlink()
    ref.write_text(published)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(copy))
    offline()
    return copy, shared


def test_a_cache_of_links_to_files_is_read(farm, trained):  # noqa: F811
    np.testing.assert_array_equal(np.asarray(kh.load(f"hf://{NAME}")(X)), trained[0])
    assert resolve(f"hf://{NAME}").checked  # by its digest


def test_what_is_damaged_outside_of_the_cache_is_not_removed_from_there(farm, trained):  # noqa: F811
    copy, shared = farm
    (blob,) = blobs(shared)
    blob.write_bytes(flipped(trained[1]))
    (link,) = copy.glob(f"models--*/snapshots/*/{FILE}")
    with pytest.raises(
        ValueError, match=r"Its link .* was removed, and what it led to was kept.*outside of this cache"
    ):
        kh.load(f"hf://{NAME}")
    assert not link.is_symlink() and blobs(shared) == [blob]
    assert (shared / link.relative_to(copy)).is_symlink()


def test_a_mirror_whose_etags_are_no_hashes(fake_hub, trained, monkeypatch):  # noqa: F811
    """That of a bucket's, of a file sent in parts."""
    honest = fake.Handler.resolve

    def resolved(self, name, revision, path, body):
        commit = self._commit_of(name, revision)
        if not commit or path not in commit[1]:
            return honest(self, name, revision, path, body)
        known = {"X-Repo-Commit": commit[0], "ETag": '"d41d8cd98f00b204e9800998ecf8427e-5"'}
        return self.send(200, commit[1][path], known)

    routes = [(method, route, resolved if call is honest else call) for method, route, call in fake._ROUTES]
    monkeypatch.setattr(fake, "_ROUTES", routes)
    fake_hub.add("org/mirror", {FILE: trained[1]})
    np.testing.assert_array_equal(np.asarray(kh.load("hf://org/mirror")(X)), trained[0])


def test_a_description_of_a_later_version_is_kept_and_never_passed_over(fake_hub, tmp_path, offline):
    kh.save(kh.create_model(VARIANT), tmp_path / "net", transform="mnist", name="net")
    files = {path.name: path.read_bytes() for path in (tmp_path / "net").iterdir() if path.is_file()}
    row = json.loads(files["weights.json"])
    row["transform"]["interpolation"] = "of a later version"
    fake_hub.add("org/later", {FILE: files[FILE], "weights.json": json.dumps(row).encode()})
    kh.hub.fetch(kh.hub.parse("org/later"), "weights.json")
    kh.hub.fetch(kh.hub.parse("org/later"), FILE)
    offline()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"as it was published, and this version .* cannot read it.*It was kept\."):
            kh.load("hf://org/later")
    assert len(blobs(tmp_path / "home" / "hub")) == 2


def test_a_description_without_a_hash_is_kept_and_never_passed_over(fake_hub, tmp_path, offline, monkeypatch):
    """Where a cache has no links, as on Windows, nothing states the hash of a `weights.json`."""
    monkeypatch.setattr("huggingface_hub.file_download.are_symlinks_supported", lambda *args, **named: False)
    fake_hub.add("org/later", {FILE: b"weights", "weights.json": b'{"of": "a later version"}'})
    path = kh.hub.fetch(kh.hub.parse("org/later"), "weights.json")
    offline()
    for ask in (kh.load, kh.describe_weights, kh.load):
        with pytest.raises(ValueError, match=r"kept, for nothing here states its hash: .* remove .*weights\.json"):
            ask("hf://org/later")
    assert path.is_file() and not path.is_symlink()


@pytest.mark.parametrize("content", [b"no weights", pickle.dumps(FILE)])
def test_a_weight_file_that_was_published_so_is_downloaded_once(fake_hub, trained, tmp_path, content):  # noqa: F811
    fake_hub.add("org/wrong", {FILE: content})
    for _ in range(2):
        with pytest.raises(ValueError, match=r"not a weight file.*as it was published.*It was kept\."):
            kh.load("hf://org/wrong")
    assert sum("/content/" in path for _, path, *_ in fake_hub.requests) == 1
    fake_hub.add("org/wrong", {FILE: trained[1]})  # its publisher mends it
    np.testing.assert_array_equal(np.asarray(kh.load("hf://org/wrong")(X)), trained[0])


@pytest.mark.parametrize("error", [OSError(errno.ESTALE, "Stale"), PermissionError(errno.EACCES, "No"), MemoryError()])
def test_what_the_system_cannot_read_is_not_damaged(published, trained, tmp_path, monkeypatch, error):  # noqa: F811
    kh.load(f"hf://{NAME}")
    (blob,) = blobs(tmp_path / "home" / "hub")

    def failing(path, most):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(weights_file, "read_regular", failing)
        kept = "It was kept, for nothing is known about its content"
        with pytest.raises((ValueError, OSError), match=kept) as raised:
            kh.load(f"hf://{NAME}")
    assert blob.is_file()
    # Of a file system that is away: a run of several processes begins again.
    assert may_pass(raised.value) == isinstance(raised.value, OSError) == (getattr(error, "errno", 0) == errno.ESTALE)
    np.testing.assert_array_equal(np.asarray(kh.load(f"hf://{NAME}")(X)), trained[0])


def test_a_state_dict_that_the_system_cannot_read_is_not_damaged(published, tmp_path, monkeypatch):  # noqa: F811
    """What safetensors raises has the system's number in its text alone."""
    with pytest.raises(ValueError, match=r"could not be read: .*os error 19") as raised:
        read_safetensors(tmp_path)
    assert isinstance(raised.value.__cause__, OSError) and raised.value.__cause__.errno == errno.ENODEV
    for error in (OSError("No such device (os error 19)"), MemoryError()):

        def failing(path, error=error):
            raise error

        with monkeypatch.context() as patch:
            patch.setattr("safetensors.numpy.load_file", failing)
            with pytest.raises(ValueError, match=r"could not be read.* It was kept, for nothing is known"):
                kh.hub.fetch(kh.hub.parse(NAME), FILE, check=read_safetensors)
    assert len(blobs(tmp_path / "home" / "hub")) == 1


def test_a_damaged_state_dict_without_a_hash_is_fetched_anew(fake_hub, monkeypatch):
    """Without it nothing is loaded, so that nobody would pass it over; a cache without links states no hash."""
    monkeypatch.setattr("huggingface_hub.file_download.are_symlinks_supported", lambda *args, **named: False)
    fake_hub.add("org/timms", {torch_files.FILE: b"cut"})
    for _ in range(2):
        with pytest.raises(ValueError, match="removed: the next call fetches it anew"):
            kh.load("hf://org/timms")
    assert sum("/content/" in path for _, path, *_ in fake_hub.requests) == 2


def test_a_mirror_whose_etags_are_sha1_of_the_content(fake_hub, tmp_path):
    """Not git's, which begins with the length."""
    fake_hub.add("org/mirror", {"a.json": b"{}"})
    path = kh.hub.fetch(kh.hub.parse("org/mirror"), "a.json")
    blob = path.resolve()
    other = blob.with_name(hashlib.sha1(b"{}").hexdigest())
    assert other.name != blob.name == hashlib.sha1(b"blob 2\0{}").hexdigest()
    blob.rename(other)
    path.unlink()
    path.symlink_to(other)
    name = kh.hub.parse(f"org/mirror@{path.parent.name}")
    assert kh.hub.fetch(name, "a.json").read_bytes() == b"{}"
    other.write_bytes(b"[]")
    with pytest.raises(ValueError, match="damaged or altered"):
        kh.hub.fetch(name, "a.json")


def test_safetensors_of_a_type_that_numpy_lacks_are_kept(fake_hub, tmp_path):
    header = json.dumps({"w": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}).encode()
    fake_hub.add("org/fp8", {torch_files.FILE: len(header).to_bytes(8, "little") + header + b"ab"})
    with pytest.raises(ValueError, match=r"save them in float32.*as it was published"):
        kh.load("hf://org/fp8")
    assert len(blobs(tmp_path / "home" / "hub")) == 1


def test_what_is_damaged_is_removed_whatever_reads_it(fake_hub, tmp_path):
    """A description of the wrong bytes is not one that this version cannot read."""
    name = kh.hub.parse("org/other")
    fake_hub.add("org/other", {"a.json": b"{}"})
    path = kh.hub.fetch(name, "a.json")
    path.resolve().write_bytes(b"[]")
    with pytest.raises(ValueError, match=r"damaged or altered.*It was removed"):
        kh.hub.fetch(name, "a.json", check=pytest.fail)
    assert blobs(tmp_path / "home" / "hub") == []


def config(root=(), **changes):
    """timm's of a ResNet50 whose `pretrained_cfg` is that of the net it was made of."""
    return {**CONFIG, **dict(root), "pretrained_cfg": {**CONFIG["pretrained_cfg"], **changes}}


@pytest.mark.parametrize(
    ("values", "classes", "names"),
    [
        (config({"num_classes": 10, "label_names": LABELS}), 10, LABELS),
        (config({"num_classes": 10}, label_names=LABELS), 10, LABELS),
        (config({"num_classes": 10, "label_names": {str(i): n for i, n in enumerate(LABELS)}}), 10, LABELS),
        (config({"num_classes": 10, "label_names": LABELS[:9]}), 10, []),
        (config({"num_classes": 10, "label_names": [1] * 10}), 10, []),
        (config({"num_classes": None}, num_classes=7), 7, []),
    ],
)
def test_the_root_of_timms_config_comes_first(tmp_path, values, classes, names):
    (tmp_path / "config.json").write_text(json.dumps(values))
    read = read_config(tmp_path / "config.json")
    assert (read.classes, list(read.names), read.imagenet) == (classes, names, False)


def test_a_thousand_other_classes_are_not_imagenets(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config({"label_names": [f"bird{i}" for i in range(1000)]})))
    assert not read_config(path).imagenet and read_config(path).names[1] == "bird1"
    path.write_text(
        json.dumps(config({"label_names": [synset for synset, _ in kh.data.transforms.imagenet_classes()]}))
    )
    assert read_config(path).imagenet


@pytest.mark.parametrize(
    "more",
    [
        {"label_descriptions": {"x" * 250: "one\nline and another"}},
        {"description": "x" * 20_000, "model_args": {"global_pool": "avg", "drop_rate": 0.1, "num_classes": 1000}},
        {"global_pool": "max", "model_args": None},  # timm's loader does not look at this one
    ],
)
def test_what_only_informs_in_timms_config_is_not_refused(tmp_path, more):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config(more, url={"deep": [[[[[[[[[[1]]]]]]]]]]})))
    assert read_config(path).classes == 1000


@pytest.fixture(scope="module")
def net_of_ten():
    """The file of a net of ten classes that is converted quickly."""
    return save(kh.convert.torch_state(kh.create_model("resnet110")))


@pytest.fixture
def of_ten(fake_hub, monkeypatch, net_of_ten):
    """Publishes a `config.json` beside that net, with a ResNet50's name."""
    monkeypatch.setattr(torch_files, "_resnet_of", lambda path: "resnet110")
    monkeypatch.setattr("keras_highway.weights.torch_files._resnet_of", lambda names: "")

    def add(values):
        fake_hub.add("me/birds", {torch_files.FILE: net_of_ten, "config.json": json.dumps(values).encode()})
        return "hf://me/birds"

    return add


def test_a_fine_tuned_net_of_timms_is_loaded_with_its_own_classes(of_ten):
    name = of_ten(config({"num_classes": 10, "label_names": LABELS}))
    assert kh.describe_weights(name).classes == tuple(LABELS) and kh.describe_weights(name).data == ""
    assert kh.load(name).output_shape == (None, 10)


@pytest.mark.more
def test_errors_name_the_file_that_the_number_is_from(of_ten):
    with pytest.raises(ValueError, match=r"of 10 classes, but the config\.json of its repository names 1000"):
        kh.load(of_ten(config()))


@pytest.mark.parametrize(
    ("values", "match"),
    [
        (config({"num_classes": 10}, interpolation="lanczos"), "resized with the filter 'lanczos'"),
        (config({"num_classes": 10, "architecture": "resnetblur50"}), "'resnetblur50', which is not a variant"),
        (config({"num_classes": 10}, std=[0.5, "a", 0.5]), r"std\[1\] must be a number.*load the weights alone"),
        (config({"num_classes": 10, "model_args": {"act_layer": "silu"}}), "another network, by 'act_layer'.*alone"),
        (config({"num_classes": 10, "model_args": {"global_pool": "max"}}), "global_pool must be one of 'avg'"),
        (config({"num_classes": 10}, global_pool="catavgmax"), "global_pool must be one of 'avg'"),
    ],
)
def test_a_config_of_timms_is_not_passed_over(of_ten, values, match):
    with pytest.raises(ValueError, match=match):
        kh.load(of_ten(values))


@pytest.mark.more
@pytest.mark.parametrize("values", [{"architectures": ["ResNet"]}, [], {"architecture": "ours"}])
def test_a_config_of_another_library_is(of_ten, values):
    assert kh.load(of_ten(values)).output_shape == (None, 10)


@pytest.mark.more
def test_a_read_only_home(fake_hub, of_ten, tmp_path, monkeypatch, capsys):
    path = tmp_path / "mine.safetensors"
    path.write_bytes(save(kh.convert.torch_state(kh.create_model("resnet110"))))
    make = Path.mkdir

    def refusing(self, *given, **named):
        if self.is_relative_to(tmp_path / "home"):
            raise PermissionError(13, os.strerror(13), str(self))  # as root may write anywhere
        return make(self, *given, **named)

    monkeypatch.setattr(Path, "mkdir", refusing)
    first, again = (kh.load(path).get_weights() for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    err = capsys.readouterr().err
    assert err.count("converting") == 1 and "cannot be written: the result is kept until this process ends" in err
    assert not (tmp_path / "home" / "keras_highway").exists()


def test_a_folder_that_may_not_be_written(tmp_path, monkeypatch):
    (tmp_path / "kept").mkdir()
    assert torch_files._writable(tmp_path / "kept")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert not torch_files._writable(tmp_path / "kept")


@pytest.mark.more
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_leaves_its_parents_conversions(tmp_path):
    """A server's workers end before it does."""
    code = (
        "import os, shutil, sys\n"
        "from keras_highway.weights.torch_files import _temporary_folder as folder\n"
        "mine = folder()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    sys.exit(folder() == mine)\n"
        "assert os.waitpid(child, 0)[1] == 0 and mine.is_dir() and folder() == mine\n"
        "shutil.rmtree(mine)  # as what tidies up temporary folders does\n"
        "assert folder().is_dir()\n"
        "print(folder())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not Path(done.stdout.strip()).exists()
