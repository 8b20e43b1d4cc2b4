"""Pictures of a MetaDrive road from above, drawn without a graphics card, a screen or MetaDrive's own renderer."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

WIDTH, HEIGHT = 480, 360
FINER = 2  # drawn larger and reduced, for smooth edges
METRES = 100.0  # the width of the picture on the road

GRASS, ROAD = (196, 208, 180), (96, 98, 102)
OTHERS, AGENT, CRASHED = (70, 120, 190), (40, 160, 70), (210, 40, 40)
WHITE, YELLOW, PALE = (250, 250, 250), (250, 200, 40), (190, 190, 190)
# MetaDrive's kinds of line: a broken one may be crossed, any other ends the episode.
NONE, BROKEN = "none", "broken"

Points = NDArray[np.float64]


class RoadPainter:
    """Paints one map; the lanes are measured once."""

    def __init__(self, road_map: Any) -> None:
        lanes = [lane for ends in road_map.road_network.graph.values() for between in ends.values() for lane in between]
        self.surfaces: list[Points] = []
        self.lines: list[tuple[Points, tuple[int, int, int], bool]] = []
        for lane in lanes:
            along = np.linspace(0.0, lane.length, max(2, int(lane.length / 2)))
            left, right = (np.array([lane.position(s, side * lane.width_at(s) / 2) for s in along]) for side in (-1, 1))
            self.surfaces.append(np.concatenate([left, right[::-1]]))
            for edge, kind, colour in zip((left, right), lane.line_types, lane.line_colors, strict=True):
                if kind != NONE:
                    solid = YELLOW if colour[2] < 0.5 * colour[0] else WHITE
                    self.lines.append((edge, PALE if kind == BROKEN else solid, kind == BROKEN))

    def paint(self, agent: Any, others: list[Any]) -> NDArray[np.uint8]:
        """The surroundings of the agent's car; north is always up."""
        image = Image.new("RGB", (WIDTH * FINER, HEIGHT * FINER), GRASS)
        draw = ImageDraw.Draw(image)
        scale = WIDTH * FINER / METRES
        middle = np.array([WIDTH, HEIGHT]) * FINER / 2
        centre = np.asarray(agent.position, dtype=np.float64)

        def pixels(points: Points) -> list[tuple[float, float]]:
            return [(float(x), float(y)) for x, y in (points - centre) * scale + middle]

        for surface in self.surfaces:
            draw.polygon(pixels(surface), fill=ROAD)
        for edge, colour, broken in self.lines:
            dots = pixels(edge)
            for start, end in list(itertools.pairwise(dots))[:: 2 if broken else 1]:
                draw.line([start, end], fill=colour, width=FINER)
        for car in others:
            draw.polygon(pixels(outline(car)), fill=OTHERS)
        draw.polygon(pixels(outline(agent)), fill=CRASHED if agent.crash_vehicle else AGENT)
        return np.asarray(image.reduce(FINER), dtype=np.uint8)


def outline(car: Any) -> Points:
    """The corners of a car."""
    ahead = np.array([np.cos(car.heading_theta), np.sin(car.heading_theta)]) * car.LENGTH / 2
    aside = np.array([-np.sin(car.heading_theta), np.cos(car.heading_theta)]) * car.WIDTH / 2
    return np.asarray(car.position) + np.array([ahead + aside, ahead - aside, -ahead - aside, -ahead + aside])
