"""Train the language model in six gatings, for [UIE, Table 1a].

    python -m training.table1a

Each model is a process with a folder, `OUT/RECIPE`, and a log, `OUT/RECIPE.log`.
The same command resumes models that were stopped and skips finished ones. With
`--jobs` several models share the device.

Exit codes: 0 all finished, or came as far as `--until`; 75 stopped by SIGTERM, the states saved; 1 a model
failed, its log reports why, the others were trained.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from keras_highway._support.files import read_log
from keras_highway._support.schema import positive
from keras_highway.tasks import format_metric
from keras_highway.training.distributed.stopping import EXIT_CODE, stop_requests
from keras_highway.training.recipes.charlm import PUBLISHED_PERPLEXITIES
from keras_highway.training.run_folder import check_finished, has_whole_result
from keras_highway.training.train import choose
from keras_highway.weights.info import format_epochs
from training import head, read_json

GATINGS = ("plain", "residual", "t_only", "c_only", "coupled", "full")


def main(argv=None) -> int:
    """Parse the command line, train, print the table; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m training.table1a", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="folder that holds ptb/ (default: KERAS_HIGHWAY_DATA)")
    parser.add_argument("--out", type=Path, default=Path("runs/table1a"), help="default: runs/table1a")
    parser.add_argument("--size", choices=("large", "small"), default="large", help="of the models (default: large)")
    parser.add_argument("--gatings", nargs="+", choices=GATINGS, default=GATINGS, help="default: all six")
    parser.add_argument("--jobs", type=int, default=1, help="models that train at once (default: 1)")
    parser.add_argument("--until", type=positive, metavar="EPOCH", help="do not go beyond this epoch now")
    parser.add_argument("--log-steps", action="store_true", help="write the loss of every step to OUT/RECIPE/steps.csv")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a field of all recipes")
    parser.add_argument("--tiny", action="store_true", help="tiny models and made-up data: to try the way")
    parser.add_argument("--table", action="store_true", help="print the table of the runs as they are")
    args = parser.parse_args(argv)
    if args.jobs < 1:
        parser.error(f"--jobs must be at least 1. Received: {args.jobs}")
    names = [f"charlm_{args.size}_{gating}" for gating in args.gatings]
    code = 0 if args.table else train_all(names, args)
    print(table(names, args.out))
    return code


def train_all(names: list[str], args) -> int:
    """Train recipes, `args.jobs` at once; return the exit code."""
    args.out.mkdir(parents=True, exist_ok=True)
    waiting, refused = [], []
    for name in names:
        try:
            if not _is_finished(args.out / name, choose(name, args.set, args.tiny)):
                waiting.append(name)
        except ValueError as error:  # the others are trained
            refused.append(name)
            print(f"{name}: {error}", file=sys.stderr)
    running: dict[str, subprocess.Popen] = {}
    codes: dict[str, int] = {}
    terminated = False
    with stop_requests() as stop:
        try:
            while running or (waiting and not stop.made):
                while waiting and len(running) < args.jobs and not stop.made:
                    name = waiting.pop(0)
                    running[name] = _start(name, args)
                if stop.made and not terminated:
                    terminated = True  # once: a second signal would hit a process that is saving its state
                    for process in running.values():
                        process.terminate()
                for name in [name for name, process in running.items() if process.poll() is not None]:
                    codes[name] = running.pop(name).returncode
                    print(f"{name}: ended with exit code {codes[name]}", file=sys.stderr, flush=True)
                time.sleep(0.2)
        finally:
            for process in running.values():  # this process failed: they would outlive it
                process.terminate()
    # A process that was terminated before it could handle the signal has nothing to save.
    stopped = {EXIT_CODE, -signal.SIGTERM} if stop.made else {EXIT_CODE}
    failed = [name for name, code in codes.items() if code not in {0, *stopped}]
    for name in failed:
        print(f"{name}: failed, see {args.out / name}.log", file=sys.stderr)
    return 1 if failed or refused else EXIT_CODE if stop.made or any(codes.values()) else 0


def _perplexity(path) -> str:
    result = read_json(path)
    return format_metric(result) + (f", after {format_epochs(result)} epochs" if "of_epochs" in result else "")


def _is_finished(folder, recipe) -> bool:
    """Whether a run has a result of all its epochs."""
    if not has_whole_result(folder):
        return False
    if (folder / "recipe.json").exists():
        check_finished(folder, recipe)
    return True


def _start(name, args) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "keras_highway.training.train",
        name,
        "--out",
        str(args.out / name),
        "--strategy",
        "none",
    ]
    command += ["--data", args.data] if args.data else []
    command += ["--tiny"] if args.tiny else []
    command += ["--log-steps"] if args.log_steps else []
    command += ["--until", str(args.until)] if args.until is not None else []
    command += [part for setting in args.set for part in ("--set", setting)]
    # JAX takes three quarters of a GPU's memory for the first process, and leaves too little for the others.
    # TensorFlow takes all of it.
    share = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / args.jobs:.3f}", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    with open(f"{args.out / name}.log", "a") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env={**share, **os.environ})


def table(names: list[str], out: Path) -> str:
    """Return a table of published and measured perplexities, with the epochs of unfinished runs."""
    lines = head("| gating | test perplexity, published | measured | validation | epochs |")
    for name in names:
        folder, rows = out / name, []
        if (folder / "log.csv").exists():
            rows = read_log(folder / "log.csv")
        result = folder / "result.json"
        measured = _perplexity(result) if result.exists() else "not finished"
        valid = f"{rows[-1]['valid_perplexity']:.2f}" if rows else "-"
        gating = name.split("_", 2)[2]
        lines.append(f"| {gating} | {PUBLISHED_PERPLEXITIES.get(name, '-')} | {measured} | {valid} | {len(rows)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
