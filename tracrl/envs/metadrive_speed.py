"""MetaDrive's roads, the same numbers in less time.

In metadrive-simulator 0.2.6.0 two thirds of a step is Python, most of it for the other cars: each of them is located,
asked for the lines and the pavement that it touches and told where it has to go in numbers that nobody reads, and its
driver asks the physics which cars are near. The functions below stand in the places of its own. What is left out is
read by nobody; what is computed is computed from the same in the same order, so that every observation, reward and cost
is the same bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracrl.envs.metadrive_near import front_and_back, perceive, surrounding

CIRCLE = 2 * math.pi


def speed_up(part: Callable[[str], Any]) -> None:
    """Put these functions into the package; ``part`` gives a module of it."""
    part("metadrive.envs.safe_metadrive_env").SafeMetaDriveEnv.step = step
    part("metadrive.engine.base_engine").BaseEngine.step = step_engine
    vehicle = part("metadrive.component.vehicle.base_vehicle").BaseVehicle
    vehicle._add_wheel, vehicle._apply_throttle_brake = add_wheel, apply_throttle_brake
    vector = part("metadrive.utils.math_utils").Vector

    def position(vehicle: Any) -> Any:
        x, y, _ = vehicle.origin.getPos()
        return vector((x, -y))

    vehicle.speed, vehicle.position = property(speed), property(position)
    traffic = part("metadrive.manager.traffic_manager").PGTrafficManager
    traffic.before_step, traffic.after_step = decide, locate_all
    lidar = part("metadrive.component.vehicle_module.lidar").Lidar
    lidar.detected, lidar.get_surrounding_objects = lidar.get_surrounding_objects, surrounding
    lidar.perceive = perceive
    navigation = part("metadrive.component.vehicle_navigation_module.node_network_navigation").NodeNetworkNavigation
    navigation._get_current_lane = current_lane
    drivers = part("metadrive.policy.idm_policy").FrontBackObjects
    drivers.get_find_front_back_objs = classmethod(front_and_back)
    part("metadrive.component.lane.straight_lane").StraightLane.local_coordinates = along_straight
    part("metadrive.component.lane.circular_lane").CircularLane.local_coordinates = along_circle


def step(simulator: Any, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
    """What the managers of a single agent's episode do in a step, without all that they report of it."""
    engine, ((name, agent),) = simulator.engine, simulator.vehicles.items()
    agent.before_step([min(max(part, -1.0), 1.0) for part in action])
    engine.traffic_manager.before_step()
    engine.step(simulator.config["decision_repeat"])
    engine.episode_step += 1
    agent.navigation.update_localization(agent)
    agent._state_check()
    agent.update_dist_to_left_right()
    velocity = float(agent.speed)
    engine.traffic_manager.after_step()
    reward, _ = simulator.reward_function(name)
    cost, _ = simulator.cost_function(name)
    info = {
        "cost": cost,
        "velocity": velocity,
        "arrive_dest": agent.arrive_destination,
        "crash": agent.crash_vehicle or agent.crash_object or agent.crash_building,
        "out_of_road": simulator._is_out_of_road(agent),
    }
    return simulator.observations[name].observe(agent), reward, False, info


# ---------------------------------------------------------------------------------------------------------------
# Physics


def step_engine(engine: Any, step_num: int = 1) -> None:
    """Let time pass, in one call: Bullet takes the same steps, and Panda copies where things are after the last alone.

    The time is that of the steps in Bullet's own single precision, so that nothing of it is left over. Panda's own
    tasks (drawing, the keyboard) have nothing to do here.
    """
    size = engine.global_config["physics_world_step_size"]
    together = float(np.float32(step_num) * np.float32(size))
    engine.physics_world.dynamic_world.doPhysics(together, step_num, size)
    engine._tracrl_moved, engine._tracrl_put_elsewhere = True, set()


def add_wheel(vehicle: Any, pos: Any, radius: float, front: bool, left: bool) -> Any:
    """A wheel without a node of its own in the scene, of which Panda would keep track to draw it."""
    from panda3d.core import Vec3

    wheel = vehicle.system.create_wheel()
    wheel.setChassisConnectionPointCs(pos)
    wheel.setFrontWheel(front)
    wheel.setWheelDirectionCs(Vec3(0, 0, -1))
    wheel.setWheelAxleCs(Vec3(1, 0, 0))
    wheel.setWheelRadius(radius)
    wheel.setMaxSuspensionTravelCm(vehicle.SUSPENSION_LENGTH)
    wheel.setSuspensionStiffness(vehicle.SUSPENSION_STIFFNESS)
    wheel.setWheelsDampingRelaxation(4.8)
    wheel.setWheelsDampingCompression(1.2)
    wheel.setFrictionSlip(vehicle.config["wheel_friction"])
    wheel.setRollInfluence(0.5)
    return wheel


def apply_throttle_brake(vehicle: Any, throttle_brake: float) -> None:
    """The same for all wheels."""
    force, brake = 0.0, 2.0
    if throttle_brake >= 0:
        if vehicle.speed <= vehicle.config["max_speed"]:
            force = vehicle.config["max_engine_force"] * throttle_brake
    elif vehicle.enable_reverse:
        force, brake = vehicle.config["max_engine_force"] * throttle_brake, 0
    else:
        brake = abs(throttle_brake) * vehicle.config["max_brake_force"]
    system = vehicle.system
    for wheel in range(4):
        system.setBrake(brake, wheel)
        system.applyEngineForce(force, wheel)


def speed(vehicle: Any) -> float:
    """km/h"""
    x, y, _ = vehicle._body.get_linear_velocity()
    return min(max(math.sqrt(x**2 + y**2) * 3.6, 0.0), 100000.0)


# ---------------------------------------------------------------------------------------------------------------
# The other cars


def decide(manager: Any) -> dict[str, Any]:
    """All other cars that have been woken decide what to do."""
    from metadrive.component.road_network import Road
    from metadrive.utils.math_utils import safe_clip_for_small_array

    engine = manager.engine
    for agent in engine.agent_manager.active_agents.values():
        start, end, _ = agent.lane_index
        asleep = manager.block_triggered_vehicles
        if asleep and Road(start, end) == asleep[-1].trigger_road:
            manager._traffic_vehicles += list(manager.get_objects(asleep.pop().vehicles).values())
    engine._tracrl_deciding = True
    for car in manager._traffic_vehicles:
        steering, throttle = safe_clip_for_small_array(engine.get_policy(car.name).act(), -1, 1)
        car.steering, car.throttle_brake = steering, throttle
        car.system.setSteeringValue(steering * car.max_steering, 0)
        car.system.setSteeringValue(steering * car.max_steering, 1)
        car._apply_throttle_brake(throttle)
    engine._tracrl_deciding = False
    return {}


def locate_all(manager: Any) -> dict[str, Any]:
    """Find the lane of each other car; one that has left the road begins anew elsewhere."""
    for car in manager._traffic_vehicles:
        locate(car)
        if not car.on_lane:
            lane = manager.respawn_lanes[manager.np_random.randint(0, len(manager.respawn_lanes))]
            longitude = manager.np_random.rand() * lane.length / 2
            car.update_config({"spawn_lane_index": lane.index, "spawn_longitude": longitude})
            car.reset(random_seed=car.random_seed)
            manager.engine.get_policy(car.id).reset()
            manager.engine._tracrl_moved = True
            manager.engine._tracrl_put_elsewhere.add(car)
    return {}


def locate(car: Any) -> None:
    navigation = car.navigation
    lane, _, car.on_lane = current_lane(navigation, car)
    if lane is not None:
        navigation.current_lane = lane
    lane = navigation.current_lane
    now, following = navigation._target_checkpoints_index
    if (
        now != following
        and lane.index[0] in navigation.checkpoints[following:]
        and lane.local_coordinates(car.position)[0] < navigation.CKPT_UPDATE_RANGE
    ):
        navigation.update_localization(car)  # it is on a new road


def current_lane(navigation: Any, car: Any) -> tuple[Any, Any, bool]:
    """The lane below a car that leads its way, its index, and whether there is any lane below."""
    place = car.origin.getPos()
    x, y, _ = place
    theta = car.heading_theta
    ahead, aside = math.cos(theta), math.sin(theta)
    place.z = 1.0
    below = type(place)(x, y, -1.0)
    on_lane, lanes = False, []
    for hit in car.engine.physics_world.static_world.rayTestAll(place, below).getHits():
        node = hit.getNode().getPythonTag("Lane")
        if node is None:
            continue
        on_lane = True
        lane = node.base_object_name
        heading = lane.heading_theta_at(lane.local_coordinates((x, -y))[0] if lane.radius else 0.0)
        if math.cos(heading) * ahead + math.sin(heading) * aside > 0:
            lanes.append(lane)
    for lane in lanes:
        if lane in navigation.current_ref_lanes:
            return lane, lane.index, on_lane
    following = navigation._target_checkpoints_index[-1]
    if navigation.next_ref_lanes is not None:
        start, end = navigation.checkpoints[following : following + 2]
        for lane in lanes:
            if lane in navigation.map.road_network.graph[start][end]:
                return lane, lane.index, on_lane
    return (lanes[0], lanes[0].index, on_lane) if lanes else (None, None, on_lane)


# ---------------------------------------------------------------------------------------------------------------
# Lanes


def along_straight(lane: Any, position: Any) -> tuple[float, float]:
    """How far along the lane and how far beside it, from plain numbers in place of arrays of two."""
    known = lane.__dict__.get("_tracrl_numbers")
    if known is None or known[0] is not lane.start or known[1] is not lane.direction_lateral:
        numbers = (*lane.start, *lane.direction, *lane.direction_lateral)
        known = lane._tracrl_numbers = (lane.start, lane.direction_lateral, *map(float, numbers))
    _, _, start_x, start_y, along_x, along_y, beside_x, beside_y = known
    x, y = position[0] - start_x, position[1] - start_y
    return x * along_x + y * along_y, x * beside_x + y * beside_y


def along_circle(lane: Any, position: Any) -> tuple[float, float]:
    center_x, center_y = lane.center
    start, radius = float(lane.start_phase), float(lane.radius)
    x, y = position[0] - float(center_x), position[1] - float(center_y)
    phase = start + ((math.atan2(y, x) - start + math.pi) % CIRCLE - math.pi)
    return lane.direction * (phase - start) * radius, lane.direction * (radius - math.sqrt(x**2 + y**2))
