"""Write the table of collected data sets into a page.

    python tools/dataset_table.py FILE.hdf5 ... [--into docs/datasets.md]

The table goes between the lines ``<!-- table -->`` and ``<!-- end of table -->`` of the page; without ``--into`` it is
printed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tracrl.collect.report import markdown_table

BEGIN, END = "<!-- table -->\n", "<!-- end of table -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    table = markdown_table(options.files)
    if options.into is None:
        print(table, end="")
        return
    before, _, rest = options.into.read_text(encoding="utf-8").partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{options.into} has no lines {BEGIN.strip()} and {END} to put the table between.")
    options.into.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
