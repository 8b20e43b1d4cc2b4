"""Who is near a car of MetaDrive, ahead of it and behind: the same answers in less time (see ``metadrive_speed``).

Every car asks the physics at every step which others touch a cylinder around it. Here the distance tells, and the
physics is asked where that does not. A driver then looks for the next ones in three lanes; here when it wants to know.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

MARGIN = 0.1  # metres, more than Bullet's own
HIGHEST = 2.0  # metres; the detector looks up to 2.5


class Near:
    """Which cars are near a car, as the simulator's detector finds them: a cylinder that their boxes touch.

    Clear cases are told by the distance. Where it comes down to how a car stands, the detector is asked; so it is about
    cars that are still in the air, or that were put elsewhere, which the physics knows only after its next step.
    """

    def __init__(self, engine: Any, last: Near | None) -> None:
        self.agents = engine.agent_manager.episode_created_agents  # an object of its own in each episode
        self.cars: list[tuple[Any, float]]
        if last is not None and last.agents is self.agents:
            self.cars = last.cars
        else:  # From the origin of a car, which is in the middle of its floor, to the farthest corner.
            cars = [thing for thing in engine._spawned_objects.values() if hasattr(thing, "lidar")]
            self.cars = [(car, math.hypot(car.LENGTH / 2, car.WIDTH / 2, car.HEIGHT)) for car in cars]
        self.places = []
        moved = engine.__dict__.get("_tracrl_put_elsewhere", ())
        for car, reach in self.cars:
            x, y, z = car.origin.getPos()
            car._tracrl_place = (x, -y)
            self.places.append((car, x, -y, reach, z < HIGHEST and car not in moved))

    def to(self, car: Any, radius: float) -> tuple[list[Any], list[Any]]:
        """The cars within the radius of another, and those of which that is not clear."""
        own_x, own_y = car._tracrl_place
        inside, near, unclear = (radius - MARGIN) ** 2, [], []
        for other, x, y, reach, clear in self.places:
            square = (x - own_x) * (x - own_x) + (y - own_y) * (y - own_y)
            if other is car:
                continue
            if not clear:
                unclear.append(other)
            elif square < inside:
                near.append(other)
            elif square < (radius + MARGIN + reach) ** 2:
                unclear.append(other)
        return near, unclear


class Seen(list[Any]):
    """The cars that are near for sure, the others that may be, and whom to ask which of them are."""

    unclear: list[Any]
    ask: Callable[[], Iterable[Any]]


def surrounding(lidar: Any, vehicle: Any) -> Iterable[Any]:
    engine = vehicle.engine
    near = engine.__dict__.get("_tracrl_near")
    if near is None or near.agents is not engine.agent_manager.episode_created_agents or engine._tracrl_moved:
        near = engine._tracrl_near = Near(engine, near)
        engine._tracrl_moved = False
    sure, unclear = near.to(vehicle, lidar.perceive_distance)
    if not unclear:
        return sure
    if not engine.__dict__.get("_tracrl_deciding"):
        return lidar.detected(vehicle)
    # So far away, hardly ever one that a driver heeds.
    seen = Seen(sure)
    seen.unclear, seen.ask = unclear, lambda: lidar.detected(vehicle)
    return seen


def perceive(lidar: Any, vehicle: Any, detector_mask: bool = True) -> tuple[list[float], Iterable[Any]]:
    """How far each laser sees; those that can meet a car are cast."""
    mask, objects = lidar._get_lidar_mask(vehicle)
    world, own = vehicle.engine.physics_world.dynamic_world, set(vehicle.dynamic_nodes)
    (x, y), theta, reach, height = vehicle.position, vehicle.heading_theta, lidar.perceive_distance, lidar.height
    start = (x, -y, height)
    points = [1.0] * lidar.num_lasers
    for laser, direction in zip(np.flatnonzero(mask).tolist(), lidar._lidar_range[mask].tolist(), strict=True):
        end = (reach * math.cos(direction + theta) + x, -(reach * math.sin(direction + theta) + y), height)
        hit = world.rayTestClosest(start, end, lidar.mask)
        if hit.getNode() in own:
            hits = sorted(world.rayTestAll(start, end, lidar.mask).getHits(), key=lambda hit: hit.getHitFraction())
            points[laser] = next((hit.getHitFraction() for hit in hits if hit.getNode() not in own), 1.0)
        else:
            points[laser] = hit.getHitFraction()
    return points, objects


def front_and_back(cls: Any, objs: Any, lane: Any, position: Any, max_distance: float, ref_lanes: Any = None) -> Any:
    """The nearest objects ahead and behind in a lane and in those beside it, which are looked at when asked for."""
    left = right = None
    if ref_lanes is not None:
        assert lane in ref_lanes
        index = lane.index[-1]
        left = ref_lanes[index - 1] if index > 0 else None
        right = ref_lanes[index + 1] if index + 1 < len(ref_lanes) else None
    lanes = Lanes((left, lane, right), objs, position, max_distance)
    return cls(*[Column(lanes, number) for number in range(4)])


class Lanes:
    """The left lane, the own and the right one; who is in them is found when it is asked for."""

    def __init__(self, lanes: Any, objs: Any, position: Any, farthest: float) -> None:
        self.lanes, self.objs, self.position, self.farthest = lanes, objs, position, farthest
        self.cars = [(car, car.navigation.current_lane, car._tracrl_place, True) for car in objs]
        if isinstance(objs, Seen):
            self.cars += [(car, car.navigation.current_lane, car._tracrl_place, False) for car in objs.unclear]
        self.found: dict[int, Any] = {}

    def find(self, at: int) -> Any:
        found = in_lane(self.lanes[at], self.cars, self.position, self.farthest)
        if found is None:  # it matters who is near
            self.cars = [(car, car.navigation.current_lane, car._tracrl_place, True) for car in self.objs.ask()]
            found = in_lane(self.lanes[at], self.cars, self.position, self.farthest)
        return found


class Column:
    """One kind of finding about each lane, in the place of a list."""

    def __init__(self, of: Lanes, number: int) -> None:
        self.of, self.number = of, number

    def __getitem__(self, at: int) -> Any:
        found = self.of.found
        if at not in found:
            found[at] = self.of.find(at)
        return found[at][self.number]


ONWARDS, BACKWARDS = 1, 2  # a lane leads to another, or the other way about


def in_lane(lane: Any, cars: Any, position: Any, farthest: float) -> tuple[Any, ...] | None:
    """The nearest cars ahead and behind in a lane, or else in one that leads on from it or to it; how far they are.

    None where it depends on a car of which it is not clear that it is near.
    """
    if lane is None:
        return None, None, None, None
    own = lane.local_coordinates(position)[0]
    front = back = None
    front_by = back_by = farthest
    front_here = back_here = False
    links = lane.__dict__.setdefault("_tracrl_links", {})  # lanes do not move once there is traffic
    for car, other, place, sure in cars:
        chosen = False
        if other is lane:
            by = lane.local_coordinates(place)[0] - own
            if front_by > by > 0:
                front, front_by, front_here, chosen = car, by, True, True
            if by < 0 and -by < back_by:
                back, back_by, back_here, chosen = car, -by, True, True
        else:
            link = links.get(other)
            if link is None:
                onwards, backwards = lane.is_previous_lane_of(other), other.is_previous_lane_of(lane)
                link = links[other] = ONWARDS * onwards + BACKWARDS * backwards
            if link & ONWARDS and not front_here:
                by = other.local_coordinates(place)[0] + (lane.length - own)
                if front_by > by > 0:
                    front, front_by, chosen = car, by, True
            elif link & BACKWARDS and not back_here:
                by = other.length - other.local_coordinates(place)[0] + own
                if back_by > by:
                    back, back_by, chosen = car, by, True
        if chosen and not sure:
            return None
    return front, back, front_by, back_by
