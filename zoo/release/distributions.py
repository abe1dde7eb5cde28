"""`python -m zoo.release.distributions`: builds wheel and sdist, and tries the wheel where nothing else is installed.

The sdist is built of the checkout, the wheel of the sdist; a wheel of the
checkout must hold the same. Then one environment each for the base and the
three backends: import, weights of the wheel, a digit on the command line, a
tiny training run; then `short_path.py`: fine-tune, save, push, pull. Needs
`build` and `hatchling`, no Keras.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "release"
ENVIRONMENTS = ("base", "tensorflow", "jax", "torch")
WEIGHTS = "model.weights.h5"
_MOST_BYTES = 100 * 10**6  # what PyPI takes of one file
_IN_SDIST = {"CHANGELOG.md", "LICENSE", "NOTICE", "PKG-INFO", "README.md", "hatch_build.py", "pyproject.toml"}
_IN_SDIST |= {"samples/digit_7.png", "zoo/results.csv"}
_PATH = "short_path.py"
_AT_THE_END = "keras-highway classify frame.png --weights hf://org/shapes: frame"
_USE = """
import keras_highway as kh
model = kh.load("mnist10_w16.tvdn")
print(kh.__version__, model.count_params(), len(kh.list_weights()), len(kh.list_models()))
"""


class ReleaseError(Exception):
    """A distribution is not as it should be."""


def build(out: Path) -> tuple[Path, Path]:
    """Build both distributions."""
    shutil.rmtree(WORK, ignore_errors=True)
    made = WORK / "dist"
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", made, ROOT)
    _run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", WORK / "checkout", ROOT)
    (wheel,), (sdist,), (direct,) = made.glob("*.whl"), made.glob("*.tar.gz"), (WORK / "checkout").glob("*.whl")
    if _members(wheel) != _members(direct):
        raise ReleaseError("The wheel built of the sdist is not that of the checkout.")
    out.mkdir(parents=True, exist_ok=True)
    for old in (path for kind in ("whl", "tar.gz") for path in out.glob(f"keras_highway-*.{kind}")):
        old.unlink()
    return Path(shutil.copy(wheel, out)), Path(shutil.copy(sdist, out))


def check_wheel(wheel: Path, root: Path = ROOT) -> list[str]:
    """Compare what a wheel holds with the checkout."""
    rows = {path.parent.name: json.loads(path.read_text("utf-8")) for path in _rows(root)}
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        information = metadata.removesuffix("METADATA")
        for file in ("LICENSE", "NOTICE"):
            _must(f"{information}licenses/{file}" in names, f"{file} is not in the wheel.")
            same = archive.read(f"{information}licenses/{file}") == (root / file).read_bytes()
            _must(same, f"{file} in the wheel is another.")
        _must("keras_highway/py.typed" in names, "py.typed is not in the wheel, and its hints not read.")
        strangers = [name for name in names if not name.startswith(("keras_highway/", information))]
        _must(not strangers, f"The wheel holds {', '.join(strangers[:5])}.")
        there = {Path(name).parent.name for name in names if name.endswith(f"/{WEIGHTS}")}
        _must(there == {name for name, row in rows.items() if row["wheel"]}, f"The wheel holds the weights of {there}.")
        for name in sorted(there):
            digest = hashlib.sha256(archive.read(f"keras_highway/zoo/weights/{name}/{WEIGHTS}")).hexdigest()
            _must(digest == rows[name]["sha256"], f"The weights of {name} are not those that weights.json describes.")
        notice = (root / "NOTICE").read_text("utf-8")
        _must(all(name in notice for name in there), "NOTICE does not name all weights of the wheel.")
    _must(wheel.stat().st_size < _MOST_BYTES, f"{wheel.name} is larger than {_MOST_BYTES:,} bytes.")
    weights = {name: sizes[f"keras_highway/zoo/weights/{name}/{WEIGHTS}"] for name in sorted(there)}
    return [
        f"{wheel.name}: {wheel.stat().st_size:,} bytes, {len(names)} files, {sum(sizes.values()):,} bytes unpacked",
        f"  licences: {', '.join(sorted(name.rsplit('/', 1)[1] for name in names if '/licenses/' in name))}",
        *(f"  weights: {name}, {size:,} bytes, sha256 as weights.json has it" for name, size in weights.items()),
    ]


def check_sdist(sdist: Path, root: Path = ROOT) -> list[str]:
    """Look for what does not belong into an sdist, which is all but the package and what goes into the wheel."""
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    allowed = ("keras_highway/", "samples/", "zoo/weights/", "zoo/results.csv")
    strangers = [name for name in names if name not in _IN_SDIST | {".gitignore"} and not name.startswith(allowed)]
    _must(not strangers, f"The sdist holds {', '.join(strangers[:5])}.")
    _must(set(names) >= _IN_SDIST, f"The sdist lacks {', '.join(_IN_SDIST - set(names))}.")
    large = {path.parent.name for path in _rows(root) if not json.loads(path.read_text("utf-8"))["wheel"]}
    heavy = [name for name in names if name.endswith(WEIGHTS) and Path(name).parent.name in large]
    _must(not heavy, f"The sdist holds {', '.join(heavy)}, too large for the wheel.")
    return [f"{sdist.name}: {sdist.stat().st_size:,} bytes, {len(names)} files; no runs, no weights but the wheel's"]


def try_wheel(wheel: Path, extra: str) -> list[str]:
    """Installs a wheel alone into an environment of its own, and uses it as a newcomer would."""
    work = WORK / extra
    _run(sys.executable, "-m", "venv", work / "venv")
    python, command = work / "venv" / "bin" / "python", work / "venv" / "bin" / "keras-highway"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    start = time.monotonic()
    if extra == "torch" and (index := os.environ.get("TORCH_INDEX")):
        _run(*pip, "torch", "--index-url", index)
    _run(*pip, str(wheel) if extra == "base" else f"{wheel}[{extra}]")
    took = time.monotonic() - start
    folder = work / "elsewhere"  # not the checkout, whose files must not be found
    folder.mkdir()
    shutil.copy(ROOT / "samples" / "digit_7.png", folder / "digit_7.png")
    package = next((work / "venv" / "lib").glob("python*/site-packages/keras_highway"))
    size = sum(path.stat().st_size for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc")
    lines = [f"{extra}: installed in {took:.0f} s; keras_highway is {size:,} bytes there"]
    if extra == "base":
        output = _run(python, "-c", "import keras_highway", cwd=folder, fails=True)
        sentence = output.strip().splitlines()[-1]
        _must("pip install" in sentence and "extras: tensorflow, jax, torch" in sentence, f"No backend: {output}")
        help_text = _run(command, "--help", cwd=folder)
        _must("classify" in help_text, "keras-highway --help")
        return [*lines, f"  without a backend: {sentence}", "  keras-highway --help: works without one"]
    environment = {"KERAS_BACKEND": extra}
    used = _run(python, "-c", _USE, cwd=folder, env=environment).split()
    _must(used[:2] == [wheel.name.split("-")[1], "38986"], f"import and load: {used}")
    lines.append(
        f"  import, kh.load: version {used[0]}, {int(used[1]):,} parameters, {used[2]} weights, {used[3]} variants"
    )
    output = _run(command, "classify", "digit_7.png", "--json", cwd=folder, env=environment)
    _must(re.search(r'"(class|label|name)": "7"', output) is not None, f"classify output: {output}")
    lines.append("  keras-highway classify digit_7.png: 7")
    output = _run(command, "train", "mnist10_w16", "--tiny", "--out", "run", cwd=folder, env=environment)
    _must((folder / "run" / "result.json").is_file(), f"train output: {output}")
    accuracy = [line for line in output.splitlines() if "test accuracy" in line]
    _must(len(accuracy) == 1, f"train output: {output}")
    lines.append(f"  keras-highway train mnist10_w16 --tiny: {accuracy[0]}")
    for file in (Path(__file__).with_name(_PATH), ROOT / "tests" / "fake_hub.py"):
        shutil.copy(file, folder)
    steps = _run(python, _PATH, cwd=folder, env=environment).splitlines()
    _must(steps[-1:] == [_AT_THE_END] and len(steps) == 4, f"{_PATH} output: {steps}")
    return [*lines, *(f"  {step}" for step in steps)]


def _run(*words, cwd=ROOT, env=None, fails=False) -> str:
    """Run a command without this process's Python settings; returns what it wrote."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "KERAS", "VIRTUAL"))}
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env={**inherited, **(env or {})}, capture_output=True, text=True
    )
    if bool(done.returncode) != fails:
        raise ReleaseError(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stderr if fails else done.stdout


def _rows(root: Path) -> list[Path]:
    return sorted((root / "zoo" / "weights").glob("[!.]*/weights.json"))


def _members(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).digest() for name in archive.namelist()}


def _must(right: bool, otherwise: str) -> None:
    if not right:
        raise ReleaseError(otherwise)


def _commit() -> str:
    """Return the commit that is built, with `-dirty` if there are changes, or `unknown` without git.

    Asked of git here: the environment that builds cannot import the package, whose runs ask for theirs.
    """
    asked = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def main(argv=None) -> int:
    """Parse the command line; returns 1 where a check fails."""
    parser = argparse.ArgumentParser(prog="python -m zoo.release.distributions", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "dist", help="folder for wheel and sdist, whose older ones it replaces"
    )
    parser.add_argument("--log", type=Path, help="file for what was checked")
    parser.add_argument("--only", nargs="*", choices=ENVIRONMENTS, default=ENVIRONMENTS, help="environments to try")
    args = parser.parse_args(argv)
    machine = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    lines = [f"$ make release    # {machine}, commit {_commit()}"]
    try:
        wheel, sdist = build(args.out)
        lines += [*check_wheel(wheel), *check_sdist(sdist), "the wheel of the sdist holds what the checkout's does"]
        print(*lines, sep="\n", flush=True)
        for extra in args.only:
            report = try_wheel(wheel, extra)
            print(*report, sep="\n", flush=True)
            lines += report
            shutil.rmtree(WORK / extra)  # gigabytes, all in all
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if args.log:
        args.log.write_text("\n".join(lines) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
