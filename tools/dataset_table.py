"""Write the table of collected data sets into a page.

    python tools/dataset_table.py FILE.hdf5 ... [--into docs/datasets.md]

The table goes between the lines ``<!-- table -->`` and ``<!-- end of table -->`` of the page; rows that it has
already, of files that are not given, stay. Without ``--into`` it is printed.
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
    old, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{options.into} has no lines {BEGIN.strip()} and {END} to put the table between.")
    options.into.write_text(f"{before}{BEGIN}\n{merged(old, table)}\n{END}{after}", encoding="utf-8")


def merged(old: str, new: str) -> str:
    """The rows of both tables, by the name in their first column; the new ones count, in the old ones' places."""
    rows = {row.split("|")[1]: row for row in old.splitlines() if row.startswith("|")}
    rows |= {row.split("|")[1]: row for row in new.splitlines()}
    return "".join(f"{row}\n" for row in rows.values())


if __name__ == "__main__":
    main()
