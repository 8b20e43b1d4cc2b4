from __future__ import annotations

import itertools

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tracrl.report.labels import place_labels


def test_names_of_a_crowd_lie_beside_each_other_and_inside_the_frame() -> None:
    drawing = Figure(figsize=(4.2, 4.0), layout="constrained")
    FigureCanvasAgg(drawing)
    axes = drawing.subplots()
    axes.set(xlim=(0, 3), ylim=(0, 1))
    drawing.draw_without_rendering()
    generator = np.random.default_rng(0)
    points = [(0.3 * x, 0.4 + 0.3 * y) for x, y in generator.uniform(size=(21, 2))]
    place_labels(axes, points, [f"HalfCheetahVelocity{i}" for i in range(21)])
    drawing.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 21
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    frame = axes.get_window_extent()
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 <= box.y1 <= frame.y1 for box in boxes)
    assert len(axes.lines) > 0, "names that found room only farther away are led to their dots"


def test_a_name_of_its_own_lies_at_the_dots_right() -> None:
    drawing = Figure(figsize=(4.2, 4.0), layout="constrained")
    FigureCanvasAgg(drawing)
    axes = drawing.subplots()
    axes.set(xlim=(0, 3), ylim=(0, 1))
    drawing.draw_without_rendering()
    place_labels(axes, [(1.0, 0.5)], ["TraC"], colours=["#0072B2"])
    (text,) = axes.texts
    assert text.get_position()[0] > 1.0
    assert text.get_color() == "#0072B2"
    assert not axes.lines
