"""Draw the rooms of the package and the arrows between them: docs/rooms.svg, from the imports themselves.

    python tools/draw_rooms.py [--check]

Rows are the layers of the contract in pyproject.toml. An arrow says "imports from"; one that follows from others is
left out. ``--check`` writes nothing and fails where the picture is not that of the present code.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "rooms.svg"
PACKAGE = "tracrl"
WIDTH, BOX, BETWEEN, MARGIN = 880, 46, 34, 16
FOUNDATION = {"bars", "checkpoints", "claims", "errors", "files", "processes", "settings", "stopping", "tensor_files"}
"""modules that every room may use: one box, whose arrows would say nothing"""
COLOURS = ("#e8f1fb", "#2f6fab")


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
    return None if len(parts) < 2 or parts[1] in FOUNDATION | {"__main__"} else parts[1]


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
    return text.rstrip(".")


def draw(rows: Sequence[Sequence[str]], edges: set[tuple[str, str]]) -> str:
    """The picture as SVG."""
    places = {
        room: (MARGIN + (WIDTH - 2 * MARGIN) * (i + 0.5) / len(row), MARGIN + y * (BOX + BETWEEN), width_of(row))
        for y, row in enumerate(rows)
        for i, room in enumerate(row)
    }
    bottom = MARGIN + len(rows) * (BOX + BETWEEN)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + BOX + MARGIN}" '
            'font-family="Helvetica, Arial, sans-serif">',
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0,0 L8,4 L0,8 z" fill="#7a8794"/></marker></defs>',
            f'<rect width="{WIDTH}" height="{bottom + BOX + MARGIN}" fill="white"/>',
            *(arrow(places[a], places[b]) for a, b in sorted(edges)),
            *(line for room, place in places.items() for line in box(room, purpose(room), *place)),
            *box(", ".join(sorted(FOUNDATION & present())), "what every room may use", WIDTH / 2, bottom, 0.94 * WIDTH),
            "</svg>",
            "",
        ]
    )


def present() -> set[str]:
    return {path.stem for path in (ROOT / PACKAGE).glob("*.py")}


def width_of(row: Sequence[str]) -> float:
    return min(560.0, (WIDTH - 2 * MARGIN) / len(row) - 24)


def box(name: str, says: str, x: float, y: float, width: float) -> Iterator[str]:
    """A room: its name, and what it is for."""
    fill, ink = COLOURS
    yield f'<rect x="{x - width / 2:g}" y="{y}" width="{width:g}" height="{BOX}" rx="7" fill="{fill}" stroke="{ink}"/>'
    yield f'<text x="{x:g}" y="{y + 19}" text-anchor="middle" font-size="15" font-weight="bold">{escape(name)}</text>'
    longest = int(width / 5.6)
    says = says if len(says) <= longest else f"{says[: longest - 1].rstrip(' ,;:')}…"
    yield f'<text x="{x:g}" y="{y + 36}" text-anchor="middle" font-size="11" fill="#44505c">{escape(says)}</text>'


def arrow(start: tuple[float, float, float], end: tuple[float, float, float]) -> str:
    """From the lower edge of a room to the upper edge of another; one that passes rows bends around their boxes."""
    x1, y1, _ = start
    x2, y2, width = end
    y1 += BOX
    if y2 - y1 > BETWEEN + 1 and abs(x1 - x2) < 40:  # behind the rows between: along the side
        side = WIDTH - MARGIN - 60
        path = f"M{x1:g},{y1} C{side},{y1 + 30} {side},{y2 - 30} {x2 + width / 4:g},{y2 - 2}"
    else:
        path = f"M{x1:g},{y1} C{x1:g},{(y1 + y2) / 2} {x2:g},{(y1 + y2) / 2} {x2:g},{y2 - 2}"
    return f'<path d="{path}" fill="none" stroke="#7a8794" stroke-width="1.4" marker-end="url(#tip)"/>'


if __name__ == "__main__":
    main()
