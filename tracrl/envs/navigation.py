"""SafetyGymnasium's navigation tasks, the same numbers in less time.

In safety-gymnasium 1.0.0 a third to two thirds of a step is Python: every position is looked up by name, the distances
to ten hazards are fifty small arrays, and contacts become objects and names up to five times. The functions below stand
in the places of its own. They compute the same from the same in the same order, so that every observation, reward and
cost is the same bit for bit; names are turned into numbers once for each world. What MuJoCo computes, and how often, is
not touched: it begins each solution from the last one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

CIRCLE = np.pi * 2


def speed_up(part: Callable[[str], Any]) -> None:
    """Put these functions into the package; ``part`` gives a module of it."""
    agent = part("safety_gymnasium.bases.base_agent").BaseAgent
    agent.pos, agent.mat = property(agent_position), property(agent_rotation)
    agent.get_sensor, agent.dist_xy = get_sensor, dist_xy
    part("safety_gymnasium.bases.base_task").BaseTask._obs_lidar_pseudo = lidar
    geoms, free = part("safety_gymnasium.assets.geoms"), part("safety_gymnasium.assets.free_geoms")
    gremlins = part("safety_gymnasium.assets.mocaps").Gremlins
    for several in (geoms.Hazards, geoms.Buttons, geoms.Pillars, free.Vases, gremlins):
        several.pos = property(positions)
    for single in (geoms.Goal, free.PushBox):
        single.pos = property(position)
    geoms.Hazards.cal_cost, geoms.Buttons.cal_cost = hazards_cost, buttons_cost
    geoms.Pillars.cal_cost, free.Vases.cal_cost = pillars_cost, vases_cost
    gremlins.cal_cost, gremlins.move = gremlins_cost, move_gremlins
    tasks = "safety_gymnasium.tasks.safe_navigation"
    button = part(f"{tasks}.button.button_level0").ButtonLevel0
    button.goal_achieved = property(button_pressed)
    for task in (button, part(f"{tasks}.goal.goal_level0").GoalLevel0, part(f"{tasks}.push.push_level0").PushLevel0):
        task.obs, task.simulation_forward = observe, advance


class Observed(gymnasium.spaces.Dict):
    """The parts of an observation, in their order, not compared with their boxes anew at each step."""

    def contains(self, x: Any) -> bool:
        return True


@gymnasium.spaces.utils.flatten.register(Observed)
def flatten(space: Observed, x: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:  # type: ignore[misc]
    return np.concatenate([x[key].reshape(-1) for key in space.spaces])


class World:
    """Where things are in the arrays of a model; there is a new one in every episode."""

    def __init__(self, model: Any, agent_geoms: list[str]) -> None:
        self.model = model
        self.bodies: dict[str, int] = {model.body(i).name: i for i in range(model.nbody)}
        self.sensors: dict[str, slice] = {}
        for i in range(model.nsensor):
            start = int(model.sensor_adr[i])
            self.sensors[model.sensor(i).name] = slice(start, start + int(model.sensor_dim[i]))
        self.geoms = [model.geom(i).name for i in range(model.ngeom)]
        self.of_agent = [name in agent_geoms for name in self.geoms]
        self.groups: dict[str, Any] = {}

    def numbered(self, pattern: str, count: int) -> list[int]:
        """The bodies of several alike."""
        if pattern not in self.groups:
            self.groups[pattern] = [self.bodies[pattern.format(i)] for i in range(count)]
        return self.groups[pattern]

    def named(self, prefix: str) -> list[bool]:
        """Of each geometry, whether its name begins so."""
        if prefix not in self.groups:
            self.groups[prefix] = [name.startswith(prefix) for name in self.geoms]
        return self.groups[prefix]


def world_of(agent: Any) -> World:
    model = agent.engine.model
    world = getattr(agent, "_tracrl_world", None)
    if world is None or world.model is not model:
        world = agent._tracrl_world = World(model, agent.body_info.geom_names)
    return world


def agent_position(agent: Any) -> NDArray[np.float64]:
    return agent.engine.data.xpos[world_of(agent).bodies["agent"]].copy()


def agent_rotation(agent: Any) -> NDArray[np.float64]:
    return agent.engine.data.xmat[world_of(agent).bodies["agent"]].copy().reshape(3, 3)


def get_sensor(agent: Any, name: str) -> NDArray[np.float64]:
    return agent.engine.data.sensordata[world_of(agent).sensors[name]].copy()


def dist_xy(agent: Any, pos: Any) -> float:
    (x, y), (own_x, own_y) = pos[:2], agent.pos[:2].tolist()
    dx, dy = float(x) - own_x, float(y) - own_y
    return math.sqrt(dx * dx + dy * dy)


PATTERNS = {
    "hazards": "hazard{}",
    "vases": "vase{}",
    "buttons": "button{}",
    "pillars": "pillar{}",
    "gremlins": "gremlin{}obj",
}


def positions(obstacle: Any) -> NDArray[np.float64]:
    world = world_of(obstacle.agent)
    return obstacle.engine.data.xpos[world.numbered(PATTERNS[obstacle.name], obstacle.num)]


def position(obstacle: Any) -> NDArray[np.float64]:
    return obstacle.engine.data.xpos[world_of(obstacle.agent).bodies[obstacle.name]].copy()


def advance(task: Any, action: NDArray[np.float64]) -> bool:
    """The physics of a step; MuJoCo's own loop where nothing is moved by hand between its steps."""
    import mujoco

    task.agent.apply_action(action)
    count = task.random_generator.binomial(task.sim_conf.frameskip_binom_n, task.sim_conf.frameskip_binom_p)
    moves = [moved.move for moved in task._mocaps.values()]
    for move in moves * count:
        move()
        mujoco.mj_step(task.model, task.data)
    if not moves:
        mujoco.mj_step(task.model, task.data, count)
    mujoco.mj_forward(task.model, task.data)
    return False  # no exception


def observe(task: Any) -> NDArray[np.float64]:
    """The sensors, and the lidars of all kinds of things at once."""
    import mujoco

    mujoco.mj_forward(task.model, task.data)
    agent, world = task.agent, world_of(task.agent)
    seen = agent.obs_sensor()
    if "seen" not in world.groups:
        kinds = [thing for thing in task._obstacles if thing.is_lidar_observed]
        bodies = [bodies_of(thing, world) for thing in kinds]
        ends = np.cumsum([0, *map(len, bodies)]).tolist()
        names = [f"{thing.name}_lidar" for thing in kinds]
        world.groups["seen"] = np.concatenate(bodies), list(zip(names, ends[:-1], ends[1:], strict=True))
    bodies, parts = world.groups["seen"]
    distances, angles = around(task, task.data.xpos[bodies])
    for name, start, end in parts:
        seen[name] = reading(task, distances[start:end], angles[start:end])
    if "buttons_lidar" in seen and task.buttons.timer != 0:
        seen["buttons_lidar"] = np.zeros(task.lidar_conf.num_bins)
    return np.concatenate([seen[key].reshape(-1) for key in task.obs_info.obs_space_dict.spaces])


def bodies_of(thing: Any, world: World) -> list[int]:
    several = PATTERNS.get(thing.name)
    return [world.bodies[thing.name]] if several is None else world.numbered(several, thing.num)


def lidar(task: Any, positions: Any) -> NDArray[np.float64]:
    """How near the nearest thing is in each direction, as seen by the agent."""
    return reading(task, *around(task, np.array(positions, np.float64, ndmin=2)))


def around(task: Any, places: NDArray[np.float64]) -> tuple[list[float], list[float]]:
    """Distance and angle of each place from the agent; the places are overwritten."""
    places[:, 2] = 0.0
    # One product of a vector and the matrix for each: a product of matrices would round otherwise.
    seen = np.matmul((places - task.agent.pos)[:, None, :], task.agent.mat)[:, 0, :2]
    across = np.ascontiguousarray(seen).view(np.complex128)[:, 0]
    return np.abs(across).tolist(), (np.angle(across) % CIRCLE).tolist()


def reading(task: Any, distances: list[float], angles: list[float]) -> NDArray[np.float64]:
    bins, reach = task.lidar_conf.num_bins, task.lidar_conf.max_dist
    size = CIRCLE / bins
    readings = [0.0] * bins
    for distance, angle in zip(distances, angles, strict=True):
        if distance >= reach:  # reads 0 everywhere
            continue
        place = int(angle / size)
        near = (reach - distance) / reach
        readings[place] = max(readings[place], near)
        beside = (angle - size * place) / size
        after, before = (place + 1) % bins, (place - 1) % bins
        readings[after] = max(readings[after], beside * near)
        readings[before] = max(readings[before], (1 - beside) * near)
    return np.array(readings)


def hazards_cost(hazards: Any) -> dict[str, float]:
    if not hazards.is_constrained:
        return {}
    cost, size = 0.0, hazards.size
    own_x, own_y = hazards.agent.pos[:2].tolist()
    for x, y, _ in positions(hazards).tolist():
        dx, dy = x - own_x, y - own_y
        distance = math.sqrt(dx * dx + dy * dy)
        if distance <= size:
            cost += hazards.cost * (size - distance)
    return {"cost_hazards": cost}


def touched(thing: Any) -> Iterator[tuple[int, int]]:
    """The contacts of the agent: the numbers of both geometries of each."""
    of_agent, contacts = world_of(getattr(thing, "agent", thing)).of_agent, thing.engine.data.contact
    for first, second in zip(contacts.geom1.tolist(), contacts.geom2.tolist(), strict=True):
        if of_agent[first] or of_agent[second]:
            yield first, second


def contact_cost(obstacle: Any, prefix: str, cost: float) -> float:
    """The cost of each contact of the agent with such an obstacle, in all."""
    such, total = world_of(obstacle.agent).named(prefix), 0.0
    for first, second in touched(obstacle):
        if such[first] or such[second]:
            total += cost
    return total


def pillars_cost(pillars: Any) -> dict[str, float]:
    return {"cost_pillars": contact_cost(pillars, "pillar", pillars.cost)} if pillars.is_constrained else {}


def gremlins_cost(gremlins: Any) -> dict[str, float]:
    if not gremlins.is_constrained:
        return {}
    return {"cost_gremlins": contact_cost(gremlins, "gremlin", gremlins.contact_cost)}


def buttons_cost(buttons: Any) -> dict[str, float]:
    if not buttons.is_constrained or buttons.timer != 0:
        return {}
    world, goal, total = world_of(buttons.agent), f"button{buttons.goal_button}", 0.0
    such = world.named("button")
    for first, second in touched(buttons):
        if (such[first] or such[second]) and goal not in (world.geoms[first], world.geoms[second]):
            total += buttons.cost
    return {"cost_buttons": total}


def vases_cost(vases: Any) -> dict[str, float]:
    """Contacts, and how fast the vases move. (Where they were moved to costs nothing in any task.)"""
    import mujoco

    if not vases.is_constrained:
        return {}
    world, model, data = world_of(vases.agent), vases.engine.model, vases.engine.data
    moving = 0.0
    jacobian = np.zeros((3, model.nv))
    for body in world.numbered("vase{}", vases.num):
        jacobian[:] = 0.0
        mujoco.mj_jacBody(model, data, jacobian, None, body)
        x, y, z = np.square(np.dot(jacobian, data.qvel)).tolist()
        speed = math.sqrt(x + y + z)
        if speed >= vases.velocity_threshold:
            moving += speed * vases.velocity_cost
    return {"cost_vases_contact": contact_cost(vases, "vase", vases.contact_cost), "cost_vases_velocity": moving}


def move_gremlins(gremlins: Any) -> None:
    """All of them turn alike."""
    engine, world = gremlins.engine, world_of(gremlins.agent)
    data = engine.data
    if "mocaps" not in world.groups:
        bodies = world.numbered("gremlin{}mocap", gremlins.num)
        world.groups["mocaps"] = [int(engine.model.body_mocapid[body]) for body in bodies]
    phase = data.time
    data.mocap_pos[world.groups["mocaps"]] = (
        np.sin(phase) * gremlins.travel,
        np.cos(phase) * gremlins.travel,
        gremlins.size,
    )


def button_pressed(task: Any) -> bool:
    geoms, goal = world_of(task.agent).geoms, f"button{task.buttons.goal_button}"
    return any(goal in (geoms[first], geoms[second]) for first, second in touched(task.agent))
