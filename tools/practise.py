"""The behaviours of SafetyGymnasium's Goal, Button and Push tasks: they practise in a sketch of these tasks, on a GPU.

    python tools/practise.py PointGoal1 --steps 200000000 --out tracrl/collect/practised

What is dangerous there lies elsewhere in each episode, and it takes a hundred million steps until a policy minds it:
days of the simulator, minutes of this sketch, which plays thousands of episodes side by side. Robots are points with a
heading that move as the real ones do in the open, obstacles are discs, and so is a box that is pushed, and lidars see
what the real ones see. One policy is told a penalty, as in ``tracrl/collect/ppo.py``. Nothing played here enters a data
set: ``tracrl collect`` plays the behaviour in the simulator itself.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tracrl.collect.behaviour import PENALTY_FEATURES
from tracrl.collect.practised import BINS, FAR, HIGHEST, REACH

TRIES = 12
"""places drawn for a thing; where none is free, it is the freest"""
LONGEST = 1000
REACHES, GRIPS = (0.6, 1.35), (0.5, 1.0)
"""from how far a box is met, against the usual distance, and how much of a robot's sideways motion it takes part in; it
turns and tilts, so these change all the time"""
HAZARDS = {"Goal1": 8, "Goal2": 10, "Button1": 4, "Button2": 8, "Push1": 2, "Push2": 4}
EXTENTS = {"Goal1": 1.5, "Goal2": 2.0, "Button1": 1.5, "Button2": 1.8, "Push1": 1.5, "Push2": 2.0}
"""metres from the middle of the world to where nothing is put any more"""


def of_any_robot(task: str) -> str:
    return re.sub("Point|Car", "", task)


@dataclass(frozen=True)
class Kind:
    """Things of one kind."""

    name: str
    count: int
    keepout: float
    """metres around it that are left free when a world is made"""
    touch: float
    """metres from the middle of a robot to where it is met"""
    costs: bool = True
    travel: float = 0.0
    """metres: the radius of the circle that it goes round"""


def kinds_of(task: str, size: float) -> list[Kind]:
    """In the order of their lidars, as SafetyGymnasium has them; ``size`` is the robot's, in metres."""
    level = int(task[-1])
    if "Push" in task:
        # A box is met by its side or by a corner, with a robot's nose or its flank, upright or tilted: see ``_push``.
        half, nose = (0.125, 0.22) if task.startswith("Car") else (0.2, 0.2)
        hazards = Kind("hazards", HAZARDS[of_any_robot(task)], 0.4, 0.3)
        pillars = Kind("pillars", 1 if level == 1 else 4, 0.3, 0.2 + size, costs=level == 2)
        box = Kind("push_box", 1, half, half + nose, costs=False)
        return [Kind("goal", 1, 0.4, 0.3, costs=False), hazards, pillars, box]
    hazards = Kind("hazards", HAZARDS[of_any_robot(task)], 0.18, 0.2)
    if "Goal" in task:
        vases = Kind("vases", 1 if level == 1 else 10, 0.15, 0.11 + size, costs=level == 2)
        return [Kind("goal", 1, 0.305, 0.3, costs=False), hazards, vases]
    gremlins = Kind("gremlins", 4 if level == 1 else 6, 0.4, 0.11 + size, travel=0.35)
    buttons = Kind("buttons", 4, 0.2, 0.1 + size)
    return [buttons, Kind("goal", 1, 0.4, 0.0, costs=False), hazards, gremlins]


class Ground:
    """Episodes side by side; tensors are (episodes, ...)."""

    def __init__(self, task: str, number: int, device: torch.device, berth: float):
        self.car, self.buttons, self.pushes = task.startswith("Car"), "Button" in task, "Push" in task
        self.extent = EXTENTS[of_any_robot(task)]
        self.seconds = 0.04 if self.car else 0.02
        self.number, self.device, self.berth = number, device, berth
        self.kinds = kinds_of(task, 0.15 if self.car else 0.12)
        counts = torch.tensor([kind.count for kind in self.kinds])
        self.first = {kind.name: int(counts[:i].sum()) for i, kind in enumerate(self.kinds)}
        each = [kind for kind in self.kinds for _ in range(kind.count)]
        self.kind_of = torch.repeat_interleave(torch.arange(len(self.kinds)), counts).to(device)

        def facts(values: list[float]) -> Tensor:
            return torch.tensor(values, device=device, dtype=torch.float32)

        self.touch, self.keepout = facts([k.touch for k in each]), facts([k.keepout for k in each])
        self.costly, self.travel = facts([k.costs for k in each]), facts([k.travel for k in each])
        self.solid = facts([k.name in ("buttons", "gremlins", "pillars") for k in each])
        self.has_solid = bool(self.solid.any())
        self.pushed = facts([k.name == "vases" for k in each])
        self.things = len(each)
        blank = {"place": (2,), "velocity": (2,), "heading": (), "spin": (), "distance": (), "clock": (), "penalty": ()}
        blank |= {"places": (self.things, 2), "home": (self.things, 2), "strength": (), "timer": ()}
        blank |= {"to_box": (), "reach": (), "grip": ()}
        for name, shape in blank.items():
            setattr(self, name, torch.zeros(number, *shape, device=device))
        self.target = torch.zeros(number, device=device, dtype=torch.long)
        self.age = torch.randint(0, LONGEST, (number,), device=device)
        self.reset(torch.arange(number, device=device))

    def reset(self, chosen: Tensor) -> None:
        """New worlds for these episodes."""
        count = len(chosen)
        self.place[chosen] = place = self._drawn(count, 0.4)
        places = torch.zeros(count, self.things, 2, device=self.device)
        taken, radius = place[:, None], torch.full((1,), 0.4, device=self.device)
        for thing in torch.argsort(-self.keepout).tolist():
            if self.buttons and thing == self.first["goal"]:
                continue
            spot = self._free(taken, radius, float(self.keepout[thing]))
            places[:, thing] = spot
            taken, radius = torch.cat([taken, spot[:, None]], 1), torch.cat([radius, self.keepout[thing : thing + 1]])
        self.places[chosen], self.home[chosen] = places, places
        self.heading[chosen] = torch.rand(count, device=self.device) * 2 * math.pi
        self.velocity[chosen], self.spin[chosen], self.clock[chosen] = 0.0, 0.0, 0.0
        self.timer[chosen] = 0.0
        self.strength[chosen] = 0.85 + 0.3 * torch.rand(count, device=self.device)
        least, most = REACHES
        self.reach[chosen] = least + (most - least) * torch.rand(count, device=self.device)
        self.grip[chosen] = GRIPS[0] + (GRIPS[1] - GRIPS[0]) * torch.rand(count, device=self.device)
        drawn = torch.rand(count, device=self.device) * 1.2 - 0.1
        self.penalty[chosen] = drawn.clamp(0, 1) * HIGHEST
        if self.buttons:
            new = torch.zeros(self.number, dtype=torch.bool, device=self.device)
            new[chosen] = True
            self._choose_button(new)
            self.timer[chosen] = 0.0
        self._move()
        self._measure()

    def _drawn(self, count: int, keepout: float, *more: int) -> Tensor:
        return (torch.rand(count, *more, 2, device=self.device) * 2 - 1) * (self.extent - keepout)

    def _free(self, taken: Tensor, radius: Tensor, keepout: float) -> Tensor:
        """The first of some spots that keeps away from what is there."""
        spots = self._drawn(len(taken), keepout, TRIES)
        gaps = ((spots[:, :, None] - taken[:, None]).norm(dim=-1) - radius - keepout).amin(-1)
        order = torch.where(gaps >= 0, 10.0 + torch.arange(TRIES, 0, -1, device=self.device), gaps)
        return spots[torch.arange(len(taken), device=self.device), order.argmax(1)]

    def _choose_button(self, which: Tensor) -> None:
        drawn = torch.randint(0, 4, (self.number,), device=self.device)
        self.target = torch.where(which, drawn, self.target)
        chosen = self.home[torch.arange(self.number, device=self.device), self.first["buttons"] + self.target]
        goal = (torch.arange(self.things, device=self.device) == self.first["goal"])[:, None]
        self.places = torch.where(goal, chosen[:, None], self.places)
        self.home = torch.where(goal, chosen[:, None], self.home)
        self.timer = torch.where(which, 10.0, self.timer)

    def _new_goal(self, which: Tensor) -> None:
        if self.buttons:
            self._choose_button(which)
            return
        goal = self.first["goal"]
        taken = torch.cat([self.place[:, None], self.places[:, goal + 1 :]], 1)
        radius = torch.cat([torch.full((1,), 0.4, device=self.device), self.keepout[goal + 1 :]])
        spot = self._free(taken, radius, float(self.kinds[0].keepout))
        moved = which[:, None, None] & (torch.arange(self.things, device=self.device) == goal)[:, None]
        self.places = torch.where(moved, spot[:, None], self.places)

    def _measure(self) -> None:
        """The distances that rewards are differences of: from robot, or box, to the goal; and from robot to box."""
        goal = self.places[:, self.first["goal"]]
        if not self.pushes:
            self.distance = (goal - self.place).norm(dim=-1)
            return
        box = self.places[:, self.first["push_box"]]
        self.distance, self.to_box = (goal - box).norm(dim=-1), (box - self.place).norm(dim=-1)

    def _move(self) -> None:
        if self.buttons:
            circle = torch.stack([self.clock.sin(), self.clock.cos()], -1)
            self.places = self.home + self.travel[:, None] * circle[:, None]

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rewards; costs, of which some is charged near an obstacle already; the task's own; what is seen then."""
        before, heading = self.place, self.heading
        (self._drive_car if self.car else self._drive_point)(actions.clamp(-1, 1))
        self.clock = self.clock + self.seconds
        self.age = self.age + 1
        self._move()
        if self.pushes:
            self._push(self.place - before, self.heading - heading)
        offsets = self.places - self.place[:, None]
        distances = offsets.norm(dim=-1)
        met = distances < self.touch
        self._bump(offsets, distances, met)
        heeded = self.costly.expand(self.number, -1)
        if self.buttons:
            mine = self.kind_of == 0
            wanted = torch.nn.functional.one_hot(self.target + self.first["buttons"], self.things).bool()
            reached = (met & wanted).any(1)
            heeded = heeded * ~wanted * ~(mine & (self.timer > 0)[:, None])
        elif self.pushes:
            box = self.places[:, self.first["push_box"]]
            reached = (self.places[:, self.first["goal"]] - box).norm(dim=-1) < 0.3
        else:
            reached = met[:, self.first["goal"]]
        far, from_box = self.distance, self.to_box
        self._measure()
        rewards = far - self.distance + from_box - self.to_box + reached
        self.timer = (self.timer - 1).clamp(min=0)
        near = (1 - (distances - self.touch) / self.berth).clamp(0, 1) * heeded
        self._new_goal(reached)
        self._measure()
        return rewards, near.amax(1), (met * heeded).amax(1), self.observe()

    def _bump(self, offsets: Tensor, distances: Tensor, met: Tensor) -> None:
        """Solid things stop a robot; vases are pushed along."""
        away = offsets / distances.clamp(min=1e-6)[..., None]
        depth = (self.touch - distances).clamp(min=0) * met
        self.places = self.places + (self.pushed * depth)[..., None] * away
        if not self.has_solid:
            return
        deepest, which = (depth * self.solid).max(1)
        direction = away.gather(1, which[:, None, None].expand(-1, 1, 2))[:, 0]
        self.place = self.place - direction * (0.9 * deepest)[:, None]
        inward = (self.velocity * direction).sum(1).clamp(min=0) * (deepest > 0)
        self.velocity = self.velocity - direction * inward[:, None]

    def _push(self, moved: Tensor, turned: Tensor) -> None:
        """A box weighs nothing beside a robot, and stops at once: it is where robot and pillars leave it.

        It hardly slides along a robot, so whoever turns takes it along, and has to back off to get round it.
        """
        box = self.first["push_box"]
        pillars = self.places[:, self.first["pillars"] : box]
        self.reach = (self.reach + 0.02 * torch.randn_like(self.reach)).clamp(*REACHES)
        self.grip = (self.grip + 0.02 * torch.randn_like(self.grip)).clamp(*GRIPS)
        place = self.places[:, box]
        reach = self.touch[box] * self.reach[:, None]
        away, distance, depth = _overlap(place - self.place, reach)
        aside = torch.stack([-away[:, 1], away[:, 0]], 1)
        along = ((moved * aside).sum(-1) + turned * distance[:, 0])[:, None] * aside
        place = place + depth * away + self.grip[:, None] * along * (depth > 0)
        out, _, deep = _overlap(place[:, None] - pillars, 0.2 + self.keepout[box])
        place = place + (deep * out).sum(1)
        # Who pushes against a pillar gets no further.
        away, _, depth = _overlap(place - self.place, reach)
        self.place = self.place - depth * away
        self.places = torch.cat([self.places[:, :box], place[:, None]], 1)

    def _drive_point(self, actions: Tensor) -> None:
        """MuJoCo's ten steps: a force along the heading, and a servo that is too strong for its robot."""
        mass, inertia, h = 0.00519, 2.84e-5, 0.002
        force = 0.3 * (REACH["Point"][0] * actions[:, 0]).clamp(-0.05, 0.05) * self.strength
        turn = REACH["Point"][1] * actions[:, 1]
        for _ in range(10):
            torque = 0.3 * (turn - 0.3 * self.spin).clamp(-0.05, 0.05)
            self.spin = (inertia * self.spin + h * torque) / (inertia + h * 0.005)
            self.heading = self.heading + h * self.spin
            push = force[:, None] * torch.stack([self.heading.cos(), self.heading.sin()], 1)
            self.velocity = (mass * self.velocity + h * push) / (mass + h * 0.01)
            self.place = self.place + h * self.velocity

    def _drive_car(self, actions: Tensor) -> None:
        """Two wheels whose grip limits how fast their speed changes. Its front is where a Point's right is."""
        left, right = (REACH["Car"][0] * actions / 0.02).clamp(-1, 1).unbind(1)
        front = self.heading - math.pi / 2
        v = (self.velocity * torch.stack([front.cos(), front.sin()], 1)).sum(1)
        v = v + self.strength * 0.0725 * (left + right) - 0.12 * (5 * v).tanh() - 0.2 * v * v.abs() + 0.12 * v
        w = self.spin
        w = 0.035 * w + 0.4 * self.strength * (left - right) + 0.2 * (5 * w).tanh() + 0.16 * w * w.abs()
        w = w.clamp(-2.7, 2.7)
        self.heading = self.heading + 0.02 * (w + self.spin)
        self.spin = w
        front = self.heading - math.pi / 2
        new = v[:, None] * torch.stack([front.cos(), front.sin()], 1)
        self.place = self.place + 0.02 * (new + self.velocity)
        self.velocity = new

    def observe(self) -> Tensor:
        """What a behaviour looks at: velocity in its own frame (of a Car, forward and the spin), then the lidars."""
        c, s = self.heading.cos()[:, None], self.heading.sin()[:, None]
        offsets = self.places - self.place[:, None]
        x = c * offsets[..., 0] + s * offsets[..., 1]
        y = c * offsets[..., 1] - s * offsets[..., 0]
        near = (1 - torch.hypot(x, y) / FAR).clamp(min=0)
        angle = torch.atan2(y, x).remainder(2 * math.pi) * (BINS / (2 * math.pi))
        place = angle.long().clamp(max=BINS - 1)
        beside = angle - place
        lidars = torch.zeros(self.number, len(self.kinds) * BINS, device=self.device)
        for shift, value in ((0, near), (1, beside * near), (-1, (1 - beside) * near)):
            index = self.kind_of * BINS + (place + shift) % BINS
            lidars.scatter_reduce_(1, index, value, "amax")
        if self.buttons:
            awake = (self.timer == 0)[:, None] | (torch.arange(len(self.kinds) * BINS, device=self.device) >= BINS)
            lidars = lidars * awake
        velocity = torch.stack(
            [c[:, 0] * self.velocity[:, 0] + s[:, 0] * self.velocity[:, 1],
             c[:, 0] * self.velocity[:, 1] - s[:, 0] * self.velocity[:, 0]], 1
        )  # fmt: skip
        if self.car:
            velocity = torch.stack([velocity[:, 1], self.spin], 1)
        return torch.cat([velocity, lidars], 1)


def _overlap(offset: Tensor, reach: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of things so far apart (…, 2): direction, distance, and by how much that is less than they reach (…, 1)."""
    distance = offset.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    return offset / distance, distance, (reach - distance).clamp(min=0)


def penalty_features(penalty: Tensor) -> Tensor:
    orders = torch.arange(1, PENALTY_FEATURES + 1, device=penalty.device)
    return (math.pi * penalty[:, None] * orders).cos()


def price(penalty: Tensor, lowest: float, highest: float) -> Tensor:
    """What a unit of cost is worth in rewards: it grows by the same factor with the penalty.

    Who is told hardly any penalty likes to meet obstacles, so that there are episodes that are unsafe at every limit.
    """
    share = (penalty - 0.1) / (HIGHEST - 0.1)
    return torch.where(penalty < 0.1, -0.05, lowest * (highest / lowest) ** share)


class Behaviour(nn.Module):
    """The policy that :class:`tracrl.collect.behaviour.GaussianBehaviour` plays."""

    def __init__(self, inputs: int, noise: float = 0.15, hidden: int = 128):
        super().__init__()
        self.least = math.log(noise)
        sizes = (inputs + PENALTY_FEATURES, hidden, hidden)
        self.actor = nn.Sequential(*_layers((*sizes, 2), 0.01))
        self.critic = nn.Sequential(*_layers((inputs + PENALTY_FEATURES, 256, 256, 2), 1.0))
        self.log_deviation = nn.Linear(PENALTY_FEATURES, 2)
        nn.init.zeros_(self.log_deviation.weight)
        nn.init.constant_(self.log_deviation.bias, math.log(0.6))

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        deviation = self.log_deviation(inputs[:, -PENALTY_FEATURES:]).clamp(min=self.least)
        return self.actor(inputs).tanh(), deviation


def _layers(sizes: tuple[int, ...], gain: float) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        linear = nn.Linear(inputs, outputs)
        last = i == len(sizes) - 2
        nn.init.orthogonal_(linear.weight, gain if last else 2**0.5)
        nn.init.zeros_(linear.bias)
        layers += [linear] if last else [linear, nn.Tanh()]
    return layers


def log_probability(mean: Tensor, log_deviation: Tensor, actions: Tensor) -> Tensor:
    return (-0.5 * ((actions - mean) / log_deviation.exp()).square() - log_deviation).sum(1)


def inputs_of(observed: Tensor, mean: Tensor, deviation: Tensor, features: Tensor) -> Tensor:
    return torch.cat([((observed - mean) / deviation).clamp(-10, 10), features], 1)


def loss_of(network: Behaviour, rows: dict[str, Tensor]) -> Tensor:
    """PPO's clipped objective, and the squared error of both values."""
    mean, log_deviation = network(rows["inputs"])
    ratio = (log_probability(mean, log_deviation, rows["actions"]) - rows["logp"]).exp()
    gain = rows["advantage"]
    policy = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
    critic = (network.critic(rows["inputs"]) - rows["targets"]).square().mean()
    return policy + 0.5 * critic


class Moments:
    """Mean and deviation of what has been observed so far."""

    ENOUGH = 3e8

    def __init__(self, size: int, device: torch.device):
        self.mean, self.square = torch.zeros(size, device=device), torch.ones(size, device=device)
        self.count = 1e-4

    @property
    def deviation(self) -> Tensor:
        return (self.square - self.mean * self.mean).clamp(min=1e-8).sqrt()

    def add(self, observed: Tensor) -> None:
        if self.count >= self.ENOUGH:
            return
        part = len(observed) / (self.count + len(observed))
        self.mean = self.mean + part * (observed.mean(0) - self.mean)
        self.square = self.square + part * (observed.square().mean(0) - self.square)
        self.count += len(observed)


class Practice:
    """Rounds of playing and learning (PPO), until steps or seconds are over."""

    DISCOUNT, TRACE = 0.99, 0.95

    def __init__(self, task: str, options: argparse.Namespace):
        torch.manual_seed(options.seed)
        device = torch.device(options.device)
        self.task, self.options = task, options
        self.ground = Ground(task, options.episodes, device, options.berth)
        self.seen = self.ground.observe()
        self.moments = Moments(self.seen.shape[1], device)
        self.network = Behaviour(self.seen.shape[1], options.noise).to(device)
        fused = device.type == "cuda"
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=options.lr, eps=1e-5, fused=fused)
        self.value_scale = torch.ones(2, device=device)
        self.step = torch.compile(self.ground.step) if options.compile else self.ground.step
        self.loss = torch.compile(loss_of) if options.compile else loss_of
        self.earned = torch.zeros(3, options.episodes, device=device)
        self.totals: list[Tensor] = []
        self.penalties: list[Tensor] = []

    def run(self) -> None:
        options, began, done = self.options, time.monotonic(), 0
        for number in itertools.count(1):
            spent = time.monotonic() - began
            if done >= options.steps or spent >= options.seconds:
                break
            left = 1 - max(done / options.steps, spent / options.seconds)
            for group in self.optimiser.param_groups:
                group["lr"] = options.lr * max(left, 0.05)
            self.learn(self.play())
            done += options.horizon * options.episodes
            self.begin_anew()
            if number % options.every == 0 and self.totals:
                print(f"{self.task} {done / 1e6:.1f}M {time.monotonic() - began:.0f}s", self.report(), flush=True)
        save(self.network, self.moments, Path(options.out) / f"{self.task}.safetensors")

    @torch.no_grad()
    def play(self) -> dict[str, Tensor]:
        """Some steps of every episode, as rows to learn from."""
        ground, deviation = self.ground, self.moments.deviation
        features = penalty_features(ground.penalty)
        played: dict[str, list[Tensor]] = {name: [] for name in ("inputs", "actions", "logp", "signal", "raw")}
        for _ in range(self.options.horizon):
            inputs = inputs_of(self.seen, self.moments.mean, deviation, features)
            middle, log_deviation = self.network(inputs)
            actions = middle + log_deviation.exp() * torch.randn_like(middle)
            played["raw"].append(self.seen)
            reward, cost, own, self.seen = self.step(actions)
            self.earned += torch.stack([reward, cost, own])
            played["inputs"].append(inputs)
            played["actions"].append(actions)
            played["signal"].append(torch.stack([reward, cost], 1))
            played["logp"].append(log_probability(middle, log_deviation, actions))
        rows = {name: torch.stack(values) for name, values in played.items()}
        gains, targets = self.judged(rows, inputs_of(self.seen, self.moments.mean, deviation, features))
        self.moments.add(rows.pop("raw").flatten(0, 1))
        del rows["signal"]
        rows |= {"advantage": self.advantage(gains), "targets": targets / self.value_scale}
        return {name: value.flatten(0, 1) for name, value in rows.items()}

    def judged(self, rows: dict[str, Tensor], following_inputs: Tensor) -> tuple[Tensor, Tensor]:
        """What each action brought beyond what was expected, in rewards and costs, and what is to be expected."""
        horizon, critic = self.options.horizon, self.network.critic
        values = (critic(rows["inputs"].flatten(0, 1)) * self.value_scale).view(horizon, -1, 2)
        after = critic(following_inputs) * self.value_scale
        gains, running = torch.zeros_like(values), torch.zeros_like(after)
        for t in reversed(range(horizon)):
            running = rows["signal"][t] + self.DISCOUNT * after - values[t] + self.DISCOUNT * self.TRACE * running
            gains[t], after = running, values[t]
        targets = gains + values
        size = targets.flatten(0, 1).square().mean(0).sqrt().clamp(min=1e-3)
        self.value_scale = 0.9 * self.value_scale + 0.1 * size
        return gains, targets

    def advantage(self, gains: Tensor) -> Tensor:
        """Rewards less costs at their price."""
        worth = price(self.ground.penalty, *self.options.prices).expand(len(gains), -1)
        spread = gains.flatten(0, 1).std(0)
        net = gains[..., 0] - gains[..., 0].mean() - worth * (gains[..., 1] - gains[..., 1].mean())
        return net / torch.hypot(spread[0].expand_as(worth), worth * spread[1])

    def learn(self, rows: dict[str, Tensor]) -> None:
        for _ in range(self.options.epochs):
            shuffled = torch.randperm(len(rows["inputs"]), device=rows["inputs"].device)
            for chosen in shuffled.chunk(self.options.minibatches):
                loss = self.loss(self.network, {name: value[chosen] for name, value in rows.items()})
                self.optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.network.parameters(), 0.5)
                self.optimiser.step()

    def begin_anew(self) -> None:
        """New worlds in place of those whose time is over."""
        ground = self.ground
        over = (ground.age >= LONGEST).nonzero()[:, 0]
        if len(over) == 0:
            return
        self.totals = [*self.totals[-200:], self.earned[:, over].clone()]
        self.penalties = [*self.penalties[-200:], ground.penalty[over].clone()]
        self.earned[:, over] = 0.0
        ground.age[over] = 0
        ground.reset(over)
        self.seen = ground.observe()

    def report(self) -> str:
        """Return, charged and own cost of late episodes, by their penalty."""
        ended, told = torch.cat(self.totals, 1), torch.cat(self.penalties)
        parts = []
        for low, high in itertools.pairwise((-1, 0.1, 0.3, 0.5, 0.7, 0.88, 1)):
            some = (told > low) & (told <= high)
            parts.append("/".join(f"{v:.1f}" for v in ended[:, some].mean(1).tolist()))
        return " ".join([*parts, f"deviation {self.network.log_deviation.bias.exp().mean().item():.2f}"])


def save(network: Behaviour, moments: Moments, path: Path) -> None:
    """As :func:`tracrl.collect.learner.pack` names the parts, in half precision."""
    tensors = {"mean": moments.mean, "scale": 1 / moments.deviation}
    tensors |= {"deviation.weight": network.log_deviation.weight.T, "deviation.bias": network.log_deviation.bias}
    linear = [layer for layer in network.actor if isinstance(layer, nn.Linear)]
    for i, layer in enumerate(linear):
        tensors |= {f"weight{i}": layer.weight.T, f"bias{i}": layer.bias}
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.detach().cpu().half().contiguous() for name, tensor in tensors.items()}, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=float, default=2e8)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--episodes", type=int, default=2048, help="side by side")
    parser.add_argument("--horizon", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--minibatches", type=int, default=8)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument(
        "--berth", type=float, default=0.2, help="metres around an obstacle where some of its cost is due"
    )
    parser.add_argument("--prices", type=float, nargs=2, default=(0.02, 0.4), help="of a unit of cost, in rewards")
    parser.add_argument("--noise", type=float, default=0.15, help="least deviation of an action that is practised with")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true", help="fuse the steps of the sketch")
    parser.add_argument("--every", type=int, default=100, help="iterations between lines")
    options = parser.parse_args()
    for task in options.tasks:
        Practice(task, options).run()


if __name__ == "__main__":
    main()
