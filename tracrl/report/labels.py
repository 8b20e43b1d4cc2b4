"""Names beside the dots of a scatter plot, none over another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

_RINGS = (0.0, 5.0, 12.0, 20.0, 30.0, 42.0, 56.0, 72.0, 90.0)
"""how far from its dot a name may go, in points"""
_DIRECTIONS = tuple(math.pi * k / 8 for k in (0, 8, 1, -1, 7, 9, 2, -2, 6, 10, 3, -3, 5, 11, 4, 12))
"""right first, then left, then the rest of the circle"""


def place_labels(
    axes: Any,
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    *,
    size: float = 6.5,
    dot: float = 3,
    colours: Sequence[str] | None = None,
) -> None:
    """A name for each dot, as near as there is room; a thin line leads to one that is not beside its dot.

    The figure must have its final layout, because room is counted in pixels. ``dot``: the radius, in points; names in
    ``colours`` are bold and lie on white.
    """
    dots = axes.transData.transform(np.array(points, float).reshape(-1, 2))
    scale = axes.figure.dpi / 72
    frame = axes.get_window_extent()
    taken = [(x - dot * scale, y - dot * scale, x + dot * scale, y + dot * scale) for x, y in dots]
    style: dict[str, Any] = {"fontsize": size, "ha": "center", "va": "center", "zorder": 5}
    if colours is not None:
        white = {"boxstyle": "round,pad=0.15", "facecolor": "white", "alpha": 0.8, "edgecolor": "none"}
        style |= {"fontweight": "bold", "bbox": white}
    # From the edge of the crowd inwards: names of outer dots find room outside.
    middle = dots.mean(axis=0) if len(dots) else np.zeros(2)
    for i in sorted(range(len(dots)), key=lambda i: -float(np.hypot(*(dots[i] - middle)))):
        text = axes.text(*points[i], names[i], color="0.25" if colours is None else colours[i], **style)
        extent = text.get_window_extent(axes.figure.canvas.get_renderer())
        width, height = extent.width / 2, extent.height / 2
        best, least = dots[i], math.inf
        for ring in _RINGS:
            for angle in _DIRECTIONS:
                beside = (dot + 1 + ring) * scale
                x = dots[i][0] + math.cos(angle) * (beside + width)
                y = dots[i][1] + math.sin(angle) * (beside + height)
                box = (x - width, y - height, x + width, y + height)
                inside = frame.x0 < box[0] and box[2] < frame.x1 and frame.y0 < box[1] and box[3] < frame.y1
                overlap = sum(_overlap(box, other) for other in taken) + (0 if inside else 1e6)
                if overlap < least:
                    best, least = np.array([x, y]), overlap
            if least == 0:
                break
        text.set_position(axes.transData.inverted().transform(best))
        box = (best[0] - width, best[1] - height, best[0] + width, best[1] + height)
        taken.append(box)
        near = np.clip(dots[i], box[:2], box[2:])
        if np.hypot(*(near - dots[i])) > (dot + 5) * scale:
            ends = axes.transData.inverted().transform(np.array([dots[i], near]))
            axes.plot(*ends.T, color="0.6", lw=0.5, zorder=2)


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
