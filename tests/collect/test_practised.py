"""Behaviours that practised in a sketch of a task, and the sketch itself."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from tools.practise import BINS, Behaviour, Ground, Moments, penalty_features, price, save
from tracrl.collect.behaviour import penalty_features as told_features
from tracrl.collect.practised import (
    CAREFUL,
    CARELESS,
    LOST,
    TURNS,
    Practised,
    has_practised,
    practised,
    reach_of,
    told,
)
from tracrl.collect.rollout import Order
from tracrl.collect.run import collect, default_settings, untrained
from tracrl.data.hdf5 import read_hdf5
from tracrl.envs.environment import Environment, EnvSpec
from tracrl.envs.safety_gymnasium import SafetyGymnasiumEnv
from tracrl.tasks.table import all_tasks, get_task

TASKS = [task for task in all_tasks() if has_practised(task)]
CPU = torch.device("cpu")


def ground(task: str, number: int = 3) -> Ground:
    torch.manual_seed(0)
    return Ground(task, number, CPU, berth=0.2)


def test_twelve_tasks_have_a_behaviour() -> None:
    assert len(TASKS) == 12
    for task in TASKS:
        (behaviour,) = untrained(task)
        assert behaviour is practised(task)
        assert default_settings(task).recorder.with_random_actions == 0


def found_way(behaviour: Practised, wanted: bool) -> int:
    """A seed of an order whose robot is lost, or is not."""
    noise_seeds = ((seed, np.random.SeedSequence(seed).generate_state(2, np.uint32)[1]) for seed in range(100))
    return next(seed for seed, noise in noise_seeds if (behaviour.turn_of(int(noise)) == 0) is wanted)


@pytest.mark.parametrize("task", ["PointGoal1", "CarButton2"])
def test_a_behaviour_acts_in_the_real_task(task: str) -> None:
    """It gets somewhere, and with care at less cost than without; who is lost is careful and gets nowhere."""
    env, behaviour = Environment(EnvSpec(task, reach=reach_of(task))), practised(task)
    seed = found_way(behaviour, True)
    played = {penalty: Order(0, seed, penalty, noise=0.0).play(env, behaviour) for penalty in (0.0, 0.9)}
    assert all((np.abs(rollout.actions) <= 1).all() for rollout in played.values())
    assert played[0.0].rewards.sum() > 3
    assert played[0.9].costs.sum() < played[0.0].costs.sum()
    lost = Order(0, found_way(behaviour, False), 0.0, noise=0.0).play(env, behaviour)
    assert lost.rewards.sum() < 0.5 * played[0.0].rewards.sum()
    assert lost.costs.sum() < played[0.0].costs.sum()


def test_some_are_lost_and_take_the_goal_to_lie_elsewhere() -> None:
    behaviour = practised("PointButton1")
    turns = [behaviour.turn_of(seed) for seed in range(2000)]
    assert np.mean(np.array(turns) != 0) == pytest.approx(LOST, abs=0.03)
    assert set(turns) == {0, *TURNS}
    observation = np.arange(76, dtype=np.float32)
    turned = behaviour.turned(observation, 3)
    assert turned[28:44].tolist() == [*range(41, 44), *range(28, 41)], "the goal's lidar comes behind the buttons'"
    assert (np.delete(turned, range(28, 44)) == np.delete(observation, range(28, 44))).all()
    assert (observation == np.arange(76)).all()


def test_nobody_is_told_half_a_penalty() -> None:
    penalties = [told(penalty) for penalty in np.linspace(0, 1, 101)]
    assert all(later >= earlier for earlier, later in itertools.pairwise(penalties))
    assert all(CARELESS[0] <= p <= CARELESS[1] or CAREFUL[0] <= p <= CAREFUL[1] for p in penalties)
    assert penalties[-1] == CAREFUL[1], "beyond the highest penalty as with the highest"


def test_the_price_of_costs_grows_with_the_penalty() -> None:
    prices = price(torch.tensor([0.0, 0.1, 0.5, 0.9]), 0.02, 0.4).tolist()
    assert prices == pytest.approx([-0.05, 0.02, 0.02 * 20**0.5, 0.4])


@pytest.mark.parametrize(
    "task", ["PointGoal1", "PointGoal2", "CarGoal1", "PointButton1", "CarButton2", "PointPush1", "CarPush2"]
)
def test_the_sketch_sees_what_the_simulator_shows(task: str) -> None:
    """The same things at the same places: what a behaviour looks at is the same."""
    env = SafetyGymnasiumEnv(get_task(task))
    observation, _ = env.reset(seed=4)
    simulated = env._simulator.task
    sketch = ground(task, 1)
    sketch.place[0] = torch.tensor(simulated.agent.pos[:2])
    sketch.heading[0] = math.atan2(simulated.agent.mat[1, 0], simulated.agent.mat[0, 0])
    counts = {kind.name: kind.count for kind in sketch.kinds}
    for name, first in sketch.first.items():
        places = np.array(getattr(simulated, name).pos).reshape(-1, 3)
        assert len(places) == counts[name]
        sketch.places[0, first : first + len(places)] = torch.tensor(places[:, :2])
    looked_at = practised(task).behaviour.view
    assert looked_at is not None
    # At rest; the servo of a Point trembles a little.
    lidars = sketch.observe()[0, 2:].numpy()
    assert lidars == pytest.approx(looked_at(observation)[2:], abs=2e-3)
    assert sketch.extent == pytest.approx(simulated.placements_conf.extents[2])


@pytest.mark.parametrize(("task", "error"), [("PointGoal1", 0.03), ("CarGoal1", 0.15)])
def test_the_sketch_moves_as_the_simulator_does(task: str, error: float) -> None:
    """Half a second in the open, with the same actions."""
    env = SafetyGymnasiumEnv(get_task(task))
    scale = np.array(reach_of(task))
    for drawn in ([0.3, 0.1], [1.0, 0.2], [0.2, 0.9]):
        env.reset(seed=11)
        agent = env._simulator.task.agent
        sketch = ground(task, 1)
        sketch.strength[:] = 1.0
        sketch.places += 50.0
        sketch.place[0] = torch.tensor(agent.pos[:2])
        sketch.heading[0] = math.atan2(agent.mat[1, 0], agent.mat[0, 0])
        began = agent.pos[:2].copy()
        for _ in range(25):
            env.step(np.array(drawn) * scale)
            sketch.step(torch.tensor([drawn], dtype=torch.float32))
        moved = float(np.hypot(*(agent.pos[:2] - began)))
        assert float(np.hypot(*(sketch.place[0].numpy() - agent.pos[:2]))) < error + 0.15 * moved


def test_near_an_obstacle_some_of_its_cost_is_due() -> None:
    sketch = ground("PointGoal1", 1)
    sketch.places += 50.0
    hazard = sketch.first["hazards"]
    for distance, cost, own in ((0.1, 1.0, 1.0), (0.3, 0.5, 0.0), (0.5, 0.0, 0.0)):
        sketch.velocity[:], sketch.spin[:] = 0.0, 0.0
        sketch.places[0, hazard] = sketch.place[0] + torch.tensor([distance, 0.0])
        _, charged, costs, _ = sketch.step(torch.zeros(1, 2))
        assert charged.item() == pytest.approx(cost, abs=1e-3)
        assert costs.item() == own


def test_a_goal_that_is_reached_pays_and_moves() -> None:
    sketch = ground("PointGoal1", 2)
    sketch.places[:, 1:] += 50.0
    sketch.places[0, 0] = sketch.place[0] + torch.tensor([0.2, 0.0])
    sketch.places[1, 0] = sketch.place[1] + torch.tensor([1.0, 0.0])
    sketch._measure()
    rewards = sketch.step(torch.zeros(2, 2))[0]
    assert rewards.tolist() == pytest.approx([1.0, 0.0], abs=1e-3)
    assert sketch.distance[0] > 0.4, "the new goal lies elsewhere"
    assert sketch.distance[1] == pytest.approx(1.0, abs=1e-3)


def test_a_box_goes_where_it_is_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Away from who drives into it; it pays to come nearer to it, and to bring it nearer to the goal."""
    sketch = ground("PointPush1", 1)
    box, goal = sketch.first["push_box"], sketch.first["goal"]
    sketch.places += 50.0
    sketch.place[0], sketch.heading[0] = torch.zeros(2), 0.0
    monkeypatch.setattr("tools.practise.REACHES", (1.0, 1.0))
    sketch.strength[:] = 1.0
    sketch.places[0, box], sketch.places[0, goal] = torch.tensor([0.6, 0.0]), torch.tensor([3.0, 0.0])
    sketch._measure()
    earned = sum(sketch.step(torch.tensor([[1.0, 0.0]]))[0].item() for _ in range(40))
    x, y = sketch.places[0, box].tolist()
    assert x > 0.7
    assert y == pytest.approx(0.0, abs=1e-3)
    assert x - sketch.place[0, 0].item() == pytest.approx(0.4, abs=0.02), "in touch"
    assert earned == pytest.approx(0.2 + x - 0.6, abs=0.02)


def test_who_turns_takes_a_box_along() -> None:
    sketch = ground("PointPush1", 1)
    box = sketch.first["push_box"]
    sketch.places += 50.0
    sketch.place[0] = torch.zeros(2)
    sketch.reach[:], sketch.grip[:] = 1.0, 1.0
    sketch.places[0, box] = torch.tensor([0.3, 0.0])
    sketch._push(torch.zeros(1, 2), torch.tensor([0.1]))
    assert sketch.places[0, box, 1].item() == pytest.approx(0.3 * 0.1 * sketch.grip.item())
    assert sketch.places[0, box].norm().item() == pytest.approx(0.4 * sketch.reach.item(), abs=0.01)


def test_a_box_stops_at_a_pillar_and_so_does_who_pushes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = ground("CarPush1", 1)
    box, pillar = sketch.first["push_box"], sketch.first["pillars"]
    sketch.places += 50.0
    sketch.place[0] = torch.zeros(2)
    monkeypatch.setattr("tools.practise.REACHES", (1.0, 1.0))
    sketch.places[0, box], sketch.places[0, pillar] = torch.tensor([0.3, 0.0]), torch.tensor([0.6, 0.0])
    sketch._push(torch.zeros(1, 2), torch.zeros(1))
    assert sketch.places[0, box].tolist() == pytest.approx([0.275, 0.0])
    assert sketch.place[0].tolist() == pytest.approx([0.275 - 0.345, 0.0])


def test_what_practised_is_what_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network of the tool, saved, and as ``collect`` loads it, act alike."""
    torch.manual_seed(1)
    network = Behaviour(2 + 3 * BINS)
    for layer in network.actor:
        if isinstance(layer, torch.nn.Linear):
            torch.nn.init.normal_(layer.weight, std=0.3)
    moments = Moments(50, CPU)
    moments.mean, moments.square = torch.rand(50), torch.rand(50) + 2
    save(network, moments, tmp_path / "PointGoal1.safetensors")
    monkeypatch.setattr("tracrl.collect.practised.FOLDER", tmp_path)
    behaviour = practised.__wrapped__("PointGoal1").behaviour
    observation = np.random.default_rng(0).uniform(0, 1, 60).astype(np.float32)
    decide, deviation = behaviour.at(0.8)
    seen = torch.tensor(np.concatenate([observation[3:5], observation[12:60]]))
    features = penalty_features(torch.tensor([0.8]))
    assert features[0].tolist() == pytest.approx(told_features(np.array([0.8], np.float32))[0].tolist(), abs=1e-6)
    inputs = torch.cat([(seen - moments.mean) / moments.deviation, features[0]])[None]
    wanted, log_deviation = network(inputs)
    assert decide(observation) == pytest.approx(wanted[0].detach().numpy(), abs=5e-3)
    assert deviation == pytest.approx(log_deviation.exp()[0].detach().numpy(), rel=1e-2)


def test_a_recipe_says_how_much_of_the_box_is_used(tmp_path: Path) -> None:
    """A file has the box of what was played, and a collection of before, with another, is not gone on with."""
    path = collect("PointGoal1", episodes=1, out=tmp_path / "one.hdf5", workers=1)
    data = read_hdf5(path)
    assert data.action_high.tolist() == pytest.approx(reach_of("PointGoal1"))
    assert (np.abs(data.actions) <= data.action_high).all()
    assert data.metadata["recipe"]["environment"]["reach"] == list(reach_of("PointGoal1"))
