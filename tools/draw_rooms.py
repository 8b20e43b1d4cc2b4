"""Draw the rooms of the package and the arrows between them: docs/rooms.svg, from the imports themselves.

    python tools/draw_rooms.py [--check]

Rows are the layers of the contract in pyproject.toml. An arrow says "imports from"; one that follows from others is
left out. ``--check`` writes nothing and fails where the picture is not that of the present code.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "rooms.svg"
PACKAGE = "tracrl"
WIDTH, CHAIN, BOX, BETWEEN, MARGIN = 960, 520, 46, 32, 16
FOUNDATION = {path.stem for path in (ROOT / PACKAGE).glob("*.py")}
"""modules that every room may use: one box, whose arrows would say nothing"""
FILL, INK = "#e8f1fb", "#2f6fab"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    picture = draw(layers(), arrows())
    if not options.check:
        PICTURE.write_text(picture, encoding="utf-8")
    elif not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != picture:
        sys.exit(f"{PICTURE.relative_to(ROOT)} is not the picture of this code: run python tools/draw_rooms.py.")


def layers() -> list[list[str]]:
    """The rooms from top to bottom, as the contract orders them; the foundation is the last row."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    rows = [[room.strip() for room in row.split("|")] for row in contract["contracts"][0]["layers"]]
    return [row for row in rows if not set(row) & FOUNDATION]


def arrows() -> set[tuple[str, str]]:
    """(importer, imported) rooms, without those that follow from two others."""
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=True)
    direct: dict[str, set[str]] = {}
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            pair = room_of(module), room_of(imported)
            if None not in pair and pair[0] != pair[1]:
                direct.setdefault(str(pair[0]), set()).add(str(pair[1]))
    return {(a, b) for a in direct for b in direct[a] if not any(b in reached(direct, c) for c in direct[a] - {b})}


def room_of(module: str) -> str | None:
    """tracrl.data.hdf5 -> data; None for the foundation and the package itself."""
    parts = module.split(".")
    return None if len(parts) < 2 or parts[1] in FOUNDATION else parts[1]


def reached(direct: dict[str, set[str]], start: str) -> set[str]:
    """Every room that can be reached from one."""
    seen: set[str] = set()
    todo = [start]
    while todo:
        for room in direct.get(todo.pop(), set()) - seen:
            seen.add(room)
            todo.append(room)
    return seen


def purpose(room: str) -> str:
    """The first sentence of a room's docstring."""
    path = ROOT / PACKAGE / room / "__init__.py"
    path = path if path.exists() else ROOT / PACKAGE / f"{room}.py"
    text = path.read_text(encoding="utf-8").split('"""')[1].strip().splitlines()[0]
    return text.split(". ")[0].rstrip(".")


def draw(rows: Sequence[Sequence[str]], edges: set[tuple[str, str]]) -> str:
    """The picture as SVG."""
    places = {room: Place(x, y, width_of(row)) for y, row in enumerate(rows) for room, x in spread(row)}
    bottom = Place(WIDTH / 2, len(rows), WIDTH - 2 * MARGIN)
    lanes, landings = (itertools.count(CHAIN / 2 + 105, 14), itertools.count(24, 26))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom.top + BOX + MARGIN}" '
            'font-family="Helvetica, Arial, sans-serif">',
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0,0 L8,4 L0,8 z" fill="#7a8794"/></marker></defs>',
            f'<rect width="{WIDTH}" height="{bottom.top + BOX + MARGIN}" fill="white"/>',
            *(
                arrow(places[a], places[b], lanes, landings)
                for a, b in sorted(edges, key=lambda edge: (places[edge[0]].row, edge))
            ),
            *(line for room, place in places.items() for line in box(room, purpose(room), place)),
            *box(
                ", ".join(sorted(name for name in FOUNDATION if not name.startswith("__"))),
                "what every room may use",
                bottom,
            ),
            "</svg>",
            "",
        ]
    )


@dataclass(frozen=True)
class Place:
    """Where a box stands."""

    x: float
    row: int
    width: float

    @property
    def top(self) -> int:
        return MARGIN + self.row * (BOX + BETWEEN)

    @property
    def bottom(self) -> int:
        return self.top + BOX


def spread(row: Sequence[str]) -> Iterator[tuple[str, float]]:
    """The boxes of a row side by side, around the middle."""
    step = width_of(row) + 24
    for i, room in enumerate(row):
        yield room, WIDTH / 2 + step * (i - (len(row) - 1) / 2)


def width_of(row: Sequence[str]) -> float:
    return CHAIN if len(row) == 1 else (CHAIN + 180) / len(row) - 24


def box(name: str, says: str, place: Place) -> Iterator[str]:
    """A room: its name, and what it is for."""
    x, y, width = place.x, place.top, place.width
    yield f'<rect x="{x - width / 2:g}" y="{y}" width="{width:g}" height="{BOX}" rx="7" fill="{FILL}" stroke="{INK}"/>'
    yield f'<text x="{x:g}" y="{y + 19}" text-anchor="middle" font-size="15" font-weight="bold">{escape(name)}</text>'
    longest = int(width / 6.1)
    says = says if len(says) <= longest else f"{says[: longest - 1].rstrip(' ,;:')}…"
    yield f'<text x="{x:g}" y="{y + 36}" text-anchor="middle" font-size="11" fill="#44505c">{escape(says)}</text>'


def arrow(start: Place, end: Place, lanes: Iterator[float], landings: Iterator[float]) -> str:
    """From box to box of the next row, or along a lane beside the rows between."""
    if end.row == start.row + 1:
        # Leave and arrive where the boxes face each other.
        x = min(max(end.x, start.x - start.width / 2 + 12), start.x + start.width / 2 - 12)
        middle = (start.bottom + end.top) / 2
        path = f"M{x:g},{start.bottom} C{x:g},{middle:g} {end.x:g},{middle:g} {end.x:g},{end.top - 2}"
    else:
        side = -1 if min(start.x, end.x) < WIDTH / 2 and start.x <= WIDTH / 2 else 1
        lane, land = next(lanes), next(landings) % (end.width / 2 - 20)
        out, turn, x = start.x + side * start.width / 2, end.top - BETWEEN / 2, end.x + side * land
        path = f"M{out:g},{start.top + BOX / 2:g} H{WIDTH / 2 + side * lane:g} V{turn:g} H{x:g} V{end.top - 2}"
    return f'<path d="{path}" fill="none" stroke="#7a8794" stroke-width="1.4" marker-end="url(#tip)"/>'


if __name__ == "__main__":
    main()
