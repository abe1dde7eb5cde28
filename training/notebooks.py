"""`python -m training.notebooks --data DIR`: runs the notebooks and keeps their outputs.

Each begins with a link that opens it in Colab and a cell that installs the package there and does nothing elsewhere.
`--repository https://github.com/org/name` writes these anew, for a repository of your own, and runs nothing.
"""

import argparse
import os
import resource
from pathlib import Path

from keras_highway._support.files import atomic_write

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
# Where the links lead. The organisation is set once, when the project is published.
REPOSITORY = "https://github.com/ORG/keras_highway"
TIMEOUT = 1200  # seconds per cell: none takes more than some minutes of processor time, but cores may be shared


def main(argv=None) -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m training.notebooks", description=__doc__)
    parser.add_argument("names", nargs="*", help="which notebooks, e.g. 01_quickstart (default: all)")
    parser.add_argument("--data", help="folder of the data sets")
    parser.add_argument("--repository", help="write the links of the notebooks for this repository, and run nothing")
    arguments = parser.parse_args(argv)
    if arguments.data:
        os.environ["KERAS_HIGHWAY_DATA"] = arguments.data
    notebooks = sorted(NOTEBOOKS.glob("*.ipynb"))
    unknown = sorted({*arguments.names} - {path.stem for path in notebooks})
    if unknown:
        known = ", ".join(path.stem for path in notebooks)
        parser.error(f"No notebook {unknown[0]!r} in {NOTEBOOKS}: names are {known}.")
    for path in notebooks:
        if not arguments.names or path.stem in arguments.names:
            if arguments.repository:
                link(path, arguments.repository)
                continue
            before = _processor_seconds()
            run(path)
            print(f"ran {path}: {_processor_seconds() - before:.0f} s of processor time")


def _processor_seconds() -> float:
    """Processor time of the kernels that have ended and of their child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(path: Path) -> None:
    """Execute a notebook in its own folder and keep its outputs.

    Left out are what changes with every run (times) and what a library writes
    at its start (stderr).
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


def badge(name: str, repository: str = REPOSITORY) -> str:
    """Return the link that opens a notebook in Colab, in Markdown."""
    path = repository.removeprefix("https://github.com/")
    address = f"https://colab.research.google.com/github/{path}/blob/main/notebooks/{name}"
    return f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({address})"


def install_cell(repository: str = REPOSITORY) -> str:
    """Return the code that installs the package in Colab."""
    return f"""import sys

if "google.colab" in sys.modules:  # elsewhere the package is there already
    %pip install --quiet "keras-highway[tensorflow,plots] @ git+{repository}\""""


def link(path: Path, repository: str = REPOSITORY) -> None:
    """Replace the badge and the install cell of a notebook. Outputs stay."""
    import nbformat  # pyright: ignore[reportMissingImports] (an extra)

    notebook = nbformat.read(path, as_version=4)
    first, cells = notebook.cells[0], notebook.cells[1:]
    title, *rest = first.source.split("\n")
    text = "\n".join(line for line in rest if not line.startswith("[![Open in Colab]")).strip("\n")
    first.source = f"{title}\n\n{badge(path.name, repository)}\n\n{text}"
    if "google.colab" in cells[0].source:
        cells = cells[1:]
    install = nbformat.v4.new_code_cell(install_cell(repository), id="colab", metadata={"tags": ["colab"]})
    notebook.cells = [first, install, *cells]
    # The cell does nothing outside of Colab: running the others runs them all.
    for count, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), start=1):
        cell.execution_count = count
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = count
    atomic_write(path, lambda p: nbformat.write(notebook, p))


if __name__ == "__main__":
    main()
