"""The notebook of the documentation: executing it, and refreshing the outputs that the site shows.

pip install -e ".[docs]" && python -m tests.notebook
"""

import os
import re
import tempfile
from pathlib import Path

from tests.reading import ROOT

NOTEBOOK = ROOT / "docs" / "notebooks" / "quickstart.ipynb"
STAMP = re.compile(r"(runs/\w+-\w+-)\d{8}T\d{6}Z-[0-9a-f]{4}")  # of a run's folder


def read(path=NOTEBOOK):
    """The notebook, as nbformat reads it."""
    import nbformat

    return nbformat.read(path, as_version=4)


def executed(notebook, folder, timeout=600):
    """The notebook with fresh outputs. It runs in `folder`. Raises CellExecutionError if a cell
    fails.
    """
    from nbclient import NotebookClient

    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    client = NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=os.environ | {"PYTHONPATH": python_path})
    return notebook


def tidied(notebook):
    """Without what differs between two executions of the same code: progress, execution times,
    names of folders.
    """
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type != "code":
            continue
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.outputs:
            texts = output.get("data", output)
            for kind, text in texts.items():
                if kind in ("text", "text/plain", "text/html"):
                    texts[kind] = STAMP.sub(r"\g<1>20260101T120000Z-ab12", text)
    return notebook


def main():
    """Execute the notebook and write its outputs."""
    import nbformat

    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(tidied(executed(read(), Path(folder))), NOTEBOOK)
    print(f"{NOTEBOOK.relative_to(ROOT)}: executed")


if __name__ == "__main__":
    main()
