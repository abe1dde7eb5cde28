"""Processes that train and restart together.

    python -m keras_highway.training.distributed.supervise --workers N -- RECIPE ...

One process of a run cannot come back alone: the others wait for it, or have
died of its absence. So when one worker dies all of this machine's are ended
and started again; they resume from the last state saved.

    python -m keras_highway.training.distributed.supervise \\
        --workers 2 -- highway110 --data DIR --out RUN

    # on the machine a; on b with --rank 1
    python -m keras_highway.training.distributed.supervise \\
        --hosts a,b --rank 0 -- highway110 --data DIR --out RUN

    # a GPU for each process
    python -m keras_highway.training.distributed.supervise \\
        --workers 8 --gpu-each -- highway50 --data DIR --out RUN

A process decodes a limited number of photographs per second, since Python runs
one thread at a time: where a GPU trains thousands, give each GPU a process of
its own.

The workers find each other by TF_CONFIG or KERAS_DISTRIBUTION_JOB_ADDRESSES,
which this program sets. Exit codes: 0 finished; 75 stopped by SIGTERM, the
state saved; 2 a worker named an error that starting again would repeat; 141 the
output of a worker was closed; 1 given up, or stopped before every worker had
saved.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

from keras_highway.training.distributed.stopping import CLOSED_PIPE, EXIT_CODE, USAGE_ERROR, stop_requests

_GPUS = "CUDA_VISIBLE_DEVICES"


def main(argv=None) -> int:
    """Parse the command line and supervise; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m keras_highway.training.distributed.supervise",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--workers", type=int, default=1, help="processes on this machine, or on each of the hosts (default: 1)"
    )
    parser.add_argument(
        "--gpu-each", action="store_true", help="show each of this machine's processes one GPU, in order"
    )
    parser.add_argument("--hosts", help="names of the machines, the same list everywhere")
    parser.add_argument("--rank", type=int, help="which of the hosts this one is, from 0")
    parser.add_argument("--port", type=int, default=12355, help="first port on every host (default: 12355)")
    parser.add_argument("--restarts", type=int, default=10, help="give up after this many (default: 10)")
    parser.add_argument(
        "--pause", type=float, default=None, help="seconds before a restart (default: 0, 30 with --hosts)"
    )
    parser.add_argument("--grace", type=float, default=60.0, help="seconds to save a state in (default: 60)")
    parser.add_argument(
        "train", nargs="+", metavar="RECIPE ...", help="arguments of keras_highway.training.train, after --"
    )
    args = parser.parse_args(argv)
    if (args.hosts is None) != (args.rank is None):
        parser.error("--hosts and --rank belong together")
    try:
        gpus = gpu_each(args.workers, os.environ.get(_GPUS)) if args.gpu_each else []
    except ValueError as error:
        parser.error(str(error))
    hosts = args.hosts.split(",") if args.hosts else None
    if args.workers < 1:
        parser.error(f"--workers must be positive. Received: {args.workers}")
    if hosts and not 0 <= args.rank < len(hosts):
        parser.error(f"--rank must be from 0 to {len(hosts) - 1}. Received: {args.rank}")
    # With several machines the other supervisors must have noticed, too, before anyone comes back.
    pause = args.pause if args.pause is not None else (30.0 if hosts else 0.0)
    with stop_requests() as stop:
        return _supervise(lambda: _start(args, hosts, gpus), stop, args.restarts, pause, args.grace)


def _supervise(start, stop, restarts, pause, grace) -> int:
    for attempt in range(restarts + 1):
        workers = start()
        while all(w.poll() in (None, 0) for w in workers) and any(w.poll() is None for w in workers) and not stop.made:
            time.sleep(0.1)
        codes = _end(workers, grace)
        if all(code == 0 for code in codes):
            return 0
        if all(code in (0, EXIT_CODE) for code in codes):
            print("stopped; start it again and it resumes", file=sys.stderr, flush=True)
            return EXIT_CODE
        if stop.made:
            print(f"stopped, but not every worker in time: exit codes {codes}", file=sys.stderr, flush=True)
            return 1
        if USAGE_ERROR in codes:
            print(f"a worker reports that it cannot work: exit codes {codes}", file=sys.stderr, flush=True)
            return USAGE_ERROR
        if CLOSED_PIPE in codes:
            print(f"the output of a worker was closed: exit codes {codes}", file=sys.stderr, flush=True)
            return CLOSED_PIPE
        left = restarts - attempt
        print(f"a worker ended: exit codes {codes}; restarting all, {left} restarts left", file=sys.stderr, flush=True)
        _wait(pause if left else 0, stop)
        if stop.made:
            return 1
    print("given up", file=sys.stderr, flush=True)
    return 1


def _wait(seconds, stop) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not stop.made:
        time.sleep(0.1)


def _start(args, hosts, gpus) -> list[subprocess.Popen]:
    command = [sys.executable, "-m", "keras_highway.training.train", *args.train]
    if hosts:
        addresses = [f"{host}:{args.port + i}" for host in hosts for i in range(args.workers)]
    else:
        addresses = [f"127.0.0.1:{port}" for port in _free_ports(args.workers)]
    workers = []
    for i in range(args.workers):
        own = worker_environment(addresses, (args.rank or 0) * args.workers + i)
        own |= {_GPUS: gpus[i]} if gpus else {}
        workers.append(subprocess.Popen(command, env={**os.environ, **own}))
    return workers


def gpu_each(workers: int, visible: str | None) -> list[str]:
    """Return the visible GPU of each process of this machine."""
    if visible is None:
        names = [str(i) for i in range(count_gpus())]
        available = f"nvidia-smi lists {len(names)}; if there are more, name them: {_GPUS}=0,1,..."
    else:
        names = [name for name in visible.split(",") if name]
        available = f"{_GPUS}={visible!r} names {len(names)}"
    if workers > len(names):
        raise ValueError(f"--gpu-each needs a GPU for each process. Received: --workers {workers}, and {available}")
    return names[:workers]


def count_gpus() -> int:
    """Return the number of GPUs that `nvidia-smi` lists, 0 without it."""
    try:
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines()) if listed.returncode == 0 else 0


def worker_environment(addresses: list[str], rank: int) -> dict[str, str]:
    """Return the environment variables by which a worker finds the others."""
    if len(addresses) == 1:
        return {}
    return {  # for both backends
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": ",".join(addresses),
        "KERAS_DISTRIBUTION_NUM_PROCESSES": str(len(addresses)),
        "KERAS_DISTRIBUTION_PROCESS_ID": str(rank),
        "TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}),
    }


def _free_ports(count) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _end(workers, grace) -> list[int]:
    """End the remaining workers: they may save their state within `grace` seconds, then they are killed."""
    for worker in workers:
        if worker.poll() is None:
            worker.send_signal(signal.SIGTERM)
    end = time.monotonic() + grace
    for worker in workers:
        try:
            worker.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
    return [worker.returncode for worker in workers]


if __name__ == "__main__":
    sys.exit(main())
