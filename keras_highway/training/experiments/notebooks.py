"""`python -m keras_highway.training.experiments.notebooks --data DIR`: runs the notebooks and keeps their outputs."""

import argparse
import os
import resource
from pathlib import Path

from keras_highway._support.files import atomic_write

NOTEBOOKS = Path(__file__).parents[3] / "notebooks"
TIMEOUT = 1200  # seconds a cell: a notebook takes at most 180 of processor time, but cores may be shared


def main(argv=None) -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="python -m keras_highway.training.experiments.notebooks", description=__doc__)
    parser.add_argument("names", nargs="*", help="which notebooks, e.g. 01_quickstart (default: all)")
    parser.add_argument("--data", help="folder of the data sets")
    arguments = parser.parse_args(argv)
    if arguments.data:
        os.environ["KERAS_HIGHWAY_DATA"] = arguments.data
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not arguments.names or path.stem in arguments.names:
            before = _processor_seconds()
            run(path)
            print(f"ran {path}: {_processor_seconds() - before:.0f} s of processor time")


def _processor_seconds() -> float:
    """Of kernels that have ended, and what they ran."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(path: Path) -> None:
    """Executes a notebook in its own folder and keeps its outputs.

    Left out are what changes with every run (times) and what a library says
    on its start (stderr).

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell fails; the file stays
            as it was.
    """
    import nbclient  # pyright: ignore[reportMissingImports] (an extra)
    import nbformat  # pyright: ignore[reportMissingImports]

    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=TIMEOUT,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    atomic_write(path, lambda p: nbformat.write(notebook, p))


if __name__ == "__main__":
    main()
