"""What an update of COptiDICE on a CPU does beside its networks, in compiled passes (Numba).

The formulas are those of :class:`tracrl.methods.coptidice.COptiDICELearner`, which autograd differentiates where there
is no Numba; here their slopes are written out.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

from tracrl.methods.coptidice import ACTION_NOISE, BATCH, FIRST, STATE_NOISE
from tracrl.nets import random
from tracrl.nets.gelu import compiled_tanh
from tracrl.nets.passes import compiled_extremes, compiled_rounding, compiled_rows
from tracrl.nets.ranges import LOG_STD_RANGE

FOUND = ("loss", "cost_bound", "multiplier", "weight")
"""what the pass over a batch's values reports, in this order"""


class ReweightingPasses(NamedTuple):
    """Kernels over arrays of NumPy. States are float32, or int16 that have the bits of bfloat16."""

    draw: Any
    """(seed, clock, ends, shift, observations, all_rewards, all_costs, episode_ends, starts, gamma,
    states, rows, rewards, costs, more): ``rows`` of a batch, drawn from pieces as in
    :class:`tracrl.nets.passes.Draws`, with what is there; ``states`` are s, s' and s₀, ``more`` is γ, or 0 where the
    flow ends"""
    dual: Any
    """(values, rewards, costs, more, raw_lambda, raw_tau, threshold, gamma, alpha, epsilon, w, of_scalars, found): the
    reweighting w, and what is ``FOUND``

    The values (2, members, rows) are ν's and χ's of the states, as they were drawn. The slopes of their losses take
    their place; ``of_scalars`` are those of what λ and τ minimise, before the softplus."""
    noisy: Any
    """(seed, clock, rows, first, observations, actions, state_noise, action_noise, states, cloned): states and actions
    of a batch's rows from the ``first`` on, with noise"""
    likelihood: Any
    """(result, cloned, w, count, loss): what these rows are of −Σ w log π / count; the slopes of it take the place of
    the ``result``, μ and log σ"""


@functools.cache
def compiled_reweighting(bf16: bool) -> ReweightingPasses:
    """Numba has to be there."""
    import numba
    import numpy as np

    (key, _), (below, normal) = random.compiled_draws(), random.compiled_numbers()
    (piece_of, row_at), (_, rounded), tanh = compiled_rows(), compiled_rounding(bf16), compiled_tanh()
    (least, _), (lowest, highest) = compiled_extremes(), LOG_STD_RANGE
    constant = 0.5 * math.log(2 * math.pi)
    compiled = numba.njit(nogil=True, error_model="numpy")

    @compiled
    def draw(
        seed: Any,
        clock: Any,
        ends: Any,
        shift: Any,
        observations: Any,
        all_rewards: Any,
        all_costs: Any,
        episode_ends: Any,
        starts: Any,
        gamma: float,
        states: Any,
        rows: Any,
        rewards: Any,
        costs: Any,
        more: Any,
    ) -> None:
        count = len(rows)
        drawn = key(seed, clock[()], BATCH)
        for i in range(count):
            row = row_at(drawn, i, ends, shift)
            last = row + 1 == episode_ends[piece_of(episode_ends, row)]
            following = row if last else row + 1  # behind an end nothing counts: any state will do
            rows[i], rewards[i], costs[i] = row, all_rewards[row], all_costs[row]
            more[i] = 0.0 if last else gamma
            for j in range(states.shape[1]):
                states[i, j] = rounded(observations[row, j])
                states[count + i, j] = rounded(observations[following, j])
        drawn = key(seed, clock[()], FIRST)
        for i in range(len(states) - 2 * count):
            row = starts[below(drawn, i, len(starts))]
            for j in range(states.shape[1]):
                states[2 * count + i, j] = rounded(observations[row, j])

    @compiled
    def softplus(x: Any) -> Any:
        """With its slope, as torch has them."""
        return (x, 1.0) if x > 20 else (np.log1p(np.exp(x)), 1 / (1 + np.exp(-x)))

    @compiled
    def of_least(values: Any, row: int) -> float:
        return float(values[least(values, row), row])

    @compiled
    def divergence(w: float) -> float:
        return w * np.log(max(w, 1e-10)) - w + 1 if w < 1 else 0.5 * (w - 1) ** 2

    @compiled
    def bound_weights(logits: Any) -> float:
        """The divergence of softmax · n from uniform; this takes the place of the logits."""
        top, total, kl = logits[0], 0.0, 0.0
        for logit in logits:
            top = max(top, logit)
        for logit in logits:
            total += np.exp(logit - top)
        shift = np.log(len(logits)) - np.log(total) - top
        for i in range(len(logits)):
            logit = logits[i] + shift
            logits[i] = np.exp(logit)
            kl += logits[i] * logit
        return kl / len(logits)

    @compiled
    def put(values: Any, row: int, slope: float) -> None:
        """The slope of the least value in its place, 0 in those of the others."""
        chosen = least(values, row)
        for member in range(len(values)):
            values[member, row] = slope if member == chosen else 0.0

    @compiled
    def slopes(values: Any, w: Any, weights: Any, more: Any, initial: float) -> None:
        """Of the mean of weight · (initial · value(s₀) + w · (more · value(s') − value(s))), in place of the values."""
        count = len(w)
        firsts = values.shape[1] - 2 * count
        of_first = np.zeros(firsts)
        for i in range(count):
            share = weights[i] / count
            put(values, i, -share * w[i])
            put(values, count + i, share * w[i] * more[i])
            of_first[i % firsts] += share * initial
        for i in range(firsts):
            put(values, 2 * count + i, of_first[i])

    @compiled
    def dual(
        values: Any,
        rewards: Any,
        costs: Any,
        more: Any,
        raw_lambda: Any,
        raw_tau: Any,
        threshold: float,
        gamma: float,
        alpha: float,
        epsilon: float,
        w: Any,
        of_scalars: Any,
        found: Any,
    ) -> None:
        (multiplier, of_lambda), (tau, of_tau) = softplus(raw_lambda[0]), softplus(raw_tau[0])
        nu, chi, count, initial = values[0], values[1], len(w), 1 - gamma
        firsts = values.shape[2] - 2 * count
        loss, bound, kl, mean = 0.0, 0.0, 0.0, 0.0
        logits, weights = np.empty(count), np.ones(count)
        for i in range(count):
            following, first = count + i, 2 * count + i % firsts
            e = rewards[i] - multiplier * costs[i] + more[i] * of_least(nu, following) - of_least(nu, i)
            w[i] = np.exp(e / alpha) if e < 0 else e / alpha + 1
            loss += initial * of_least(nu, first) + w[i] * e - alpha * divergence(w[i])
            cost_advantage = costs[i] + more[i] * of_least(chi, following) - of_least(chi, i)
            logits[i] = (initial * of_least(chi, first) + w[i] * cost_advantage) / tau
        slopes(nu, w, weights, more, initial)
        if epsilon > 0:
            kl, weights = bound_weights(logits), logits
        slopes(chi, w, weights, more, initial)
        for i in range(count):
            mean += w[i] / count
            bound += weights[i] * w[i] * costs[i] / count
        of_scalars[0], of_scalars[1] = of_lambda * (threshold - bound), of_tau * (epsilon - kl)
        found[0], found[1], found[2], found[3] = loss / count, bound, multiplier, mean

    @compiled
    def noisy(
        seed: Any,
        clock: Any,
        rows: Any,
        first: int,
        observations: Any,
        actions: Any,
        state_noise: Any,
        action_noise: Any,
        states: Any,
        cloned: Any,
    ) -> None:
        of_states, of_actions = key(seed, clock[()], STATE_NOISE), key(seed, clock[()], ACTION_NOISE)
        size, width = states.shape[1], cloned.shape[1]
        for i in range(len(states)):
            place, row = first + i, rows[first + i]
            for j in range(size):
                noise = normal(of_states, place * size + j, len(rows) * size)
                states[i, j] = rounded(observations[row, j] + state_noise[j] * noise)
            for j in range(width):
                noise = normal(of_actions, place * width + j, len(rows) * width)
                cloned[i, j] = actions[row, j] + action_noise[j] * noise

    @compiled
    def likelihood(result: Any, cloned: Any, w: Any, count: int, loss: Any) -> None:
        total, actions = 0.0, cloned.shape[1]
        for i in range(len(result)):
            share = w[i] / count
            for j in range(actions):
                centre, log_std = tanh(result[i, j]), min(max(result[i, actions + j], lowest), highest)
                inverse = np.exp(-log_std)
                off = (cloned[i, j] - centre) * inverse
                total += share * (0.5 * off * off + log_std + constant)
                result[i, j] = -share * off * inverse * (1 - centre * centre)
                within = log_std == result[i, actions + j]
                result[i, actions + j] = share * (1 - off * off) if within else 0
        loss[0] = total

    return ReweightingPasses(draw, dual, noisy, likelihood)
