"""What an update of CPQ on a CPU does beside its networks, in compiled passes (Numba).

The formulas are those of :class:`tracrl.methods.cpq.CPQLearner`, which autograd differentiates where there is no Numba;
here their slopes are written out.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from tracrl.methods.cpq import BATCH, ENCODER, OOD
from tracrl.nets import random
from tracrl.nets.gelu import compiled_tanh
from tracrl.nets.passes import compiled_extremes, compiled_rounding, compiled_rows
from tracrl.nets.ranges import LOG_STD_RANGE
from tracrl.nets.vae import LOG_STD_RANGE as LATENT_LOG_STD_RANGE


class CPQPasses(NamedTuple):
    """Kernels over arrays of NumPy. What networks take is float32, or int16 that have the bits of bfloat16.

    Most take a block of the rows of a batch of ``count``, from the ``first`` on."""

    draw: Any
    """(seed, clock, first, ends, shift, observations, actions, rewards, costs, episode_ends, terminated, final, gamma,
    states, following, logged, taken, of_rewards, of_costs, more): rows drawn from pieces as in
    :class:`tracrl.nets.passes.Draws`: s, s', (s, a) and a, rewards, costs, and γ, or 0 where the episode ended by
    itself"""
    latents: Any
    """(seed, clock, first, count, result, states, x, spread): from what the encoder says, μ and log σ, to (s, z);
    ``spread`` is z − μ"""
    encoded: Any
    """(result, of_latents, spread, share, found): from the slopes of z, and those of ``share`` times each row's
    divergence, to those of μ and log σ, in place of the ``result``; ``found`` gets the sum of that"""
    sample: Any
    """(seed, clock, stream, first, count, result, states, x, spread): from what the actor says to (s, a), a drawn from
    it; ``spread`` is what was added to μ"""
    candidates: Any
    """(seed, clock, first, count, result, logged, x): each logged (s, a), and behind it s with as many of the actor's
    own actions as ``x`` has room for"""
    regress: Any
    """(values, followed, rewards, costs, more, threshold, count, found): Bellman errors of Q and Q_c, whose ``values``
    (2, members, rows) give their place to the slopes; ``followed`` are those of the next states and actions

    ``found`` gets what these rows are of the loss and of the mean of Q_c."""
    divergences: Any
    """(result, found): of what the encoder says of each row"""
    lack: Any
    """(values, first, chosen, wanted, log_alpha, found): Q_c of actions that are out of distribution is to be above
    what is ``wanted``; ``values`` (members, rows) give their place to the slopes

    Of all rows, of which these begin at ``first``, as many count as ``chosen`` says. ``found`` gets what these are of
    the loss and of the mean lack."""
    gain: Any
    """(values, threshold, count, found): what the policy is to gain, by ``values`` (2, members, rows) of Q and Q_c,
    which give their place to the slopes; ``found`` gets what these rows are of the loss and of the safe share"""
    act: Any
    """(result, spread, of_actions): from the slopes of actions in each critic to those of the actor's ``result``, in
    its place"""


@functools.cache
def compiled_cpq(bf16: bool) -> CPQPasses:
    """Numba has to be there."""
    import numba
    import numpy as np

    (key, _), (_, normal) = random.compiled_draws(), random.compiled_numbers()
    (piece_of, row_at), (_, rounded), tanh = compiled_rows(), compiled_rounding(bf16), compiled_tanh()
    least, greatest = compiled_extremes()
    lowest, highest = LOG_STD_RANGE
    lowest_latent, highest_latent = LATENT_LOG_STD_RANGE
    compiled = numba.njit(nogil=True, error_model="numpy")

    @compiled
    def draw(
        seed: Any,
        clock: Any,
        first: int,
        ends: Any,
        shift: Any,
        observations: Any,
        actions: Any,
        rewards: Any,
        costs: Any,
        episode_ends: Any,
        terminated: Any,
        final: Any,
        gamma: float,
        states: Any,
        following: Any,
        logged: Any,
        taken: Any,
        of_rewards: Any,
        of_costs: Any,
        more: Any,
    ) -> None:
        drawn, size = key(seed, clock[()], BATCH), states.shape[1]
        for i in range(len(states)):
            row = row_at(drawn, first + i, ends, shift)
            episode = piece_of(episode_ends, row)
            last = row + 1 == episode_ends[episode]
            for j in range(size):
                states[i, j] = logged[i, j] = rounded(observations[row, j])
                following[i, j] = rounded(final[episode, j] if last else observations[row + 1, j])
            for j in range(taken.shape[1]):
                taken[i, j] = actions[row, j]
                logged[i, size + j] = rounded(actions[row, j])
            of_rewards[i], of_costs[i] = rewards[row], costs[row]
            more[i] = 0.0 if last and terminated[episode] else gamma

    @compiled
    def copy(row: Any, x: Any, size: int) -> None:
        """Slices would do the same and take seconds to compile."""
        for j in range(size):
            x[j] = row[j]

    @compiled
    def latents(seed: Any, clock: Any, first: int, count: int, result: Any, states: Any, x: Any, spread: Any) -> None:
        drawn, size, width = key(seed, clock[()], ENCODER), states.shape[1], spread.shape[1]
        for i in range(len(result)):
            copy(states[i], x[i], size)
            for j in range(width):
                std = np.exp(min(max(result[i, width + j], lowest_latent), highest_latent))
                spread[i, j] = std * normal(drawn, (first + i) * width + j, count * width)
                x[i, size + j] = rounded(result[i, j] + spread[i, j])

    @compiled
    def divergence(result: Any, row: int) -> float:
        total, width = 0.0, result.shape[1] // 2
        for j in range(width):
            mean, log_std = result[row, j], min(max(result[row, width + j], lowest_latent), highest_latent)
            total += mean * mean + np.exp(2 * log_std) - 2 * log_std - 1
        return 0.5 * total / width

    @compiled
    def encoded(result: Any, of_latents: Any, spread: Any, share: float, found: Any) -> None:
        total, width = 0.0, spread.shape[1]
        for i in range(len(result)):
            total += divergence(result, i)
            for j in range(width):
                log_std = min(max(result[i, width + j], lowest_latent), highest_latent)
                slope = of_latents[i, j] * spread[i, j] + share / width * (np.exp(2 * log_std) - 1)
                result[i, width + j] = slope if log_std == result[i, width + j] else 0
                result[i, j] = of_latents[i, j] + share / width * result[i, j]
        found[0] = share * total

    @compiled
    def sample(
        seed: Any, clock: Any, stream: int, first: int, count: int, result: Any, states: Any, x: Any, spread: Any
    ) -> None:
        drawn, size, width = key(seed, clock[()], stream), states.shape[1], spread.shape[1]
        for i in range(len(result)):
            copy(states[i], x[i], size)
            for j in range(width):
                std = np.exp(min(max(result[i, width + j], lowest), highest))
                spread[i, j] = std * normal(drawn, (first + i) * width + j, count * width)
                x[i, size + j] = rounded(tanh(result[i, j] + spread[i, j]))

    @compiled
    def candidates(seed: Any, clock: Any, first: int, count: int, result: Any, logged: Any, x: Any) -> None:
        drawn, width = key(seed, clock[()], OOD), result.shape[1] // 2
        size, tries = logged.shape[1] - width, len(x) // len(logged) - 1
        for i in range(len(logged)):
            row = i * (1 + tries)
            copy(logged[i], x[row], size + width)
            for k in range(tries):
                copy(logged[i], x[row + 1 + k], size)
            for j in range(width):
                std = np.exp(min(max(result[i, width + j], lowest), highest))
                for k in range(tries):
                    noise = normal(drawn, ((first + i) * tries + k) * width + j, count * tries * width)
                    x[row + 1 + k, size + j] = rounded(tanh(result[i, j] + std * noise))

    @compiled
    def regress(
        values: Any, followed: Any, rewards: Any, costs: Any, more: Any, threshold: float, count: int, found: Any
    ) -> None:
        loss, mean, members = 0.0, 0.0, values.shape[1]
        for i in range(len(rewards)):
            value, cost = followed[0, least(followed[0], i), i], followed[1, greatest(followed[1], i), i]
            safe = 1.0 if cost <= threshold else 0.0
            y, y_cost = rewards[i] + more[i] * safe * value, costs[i] + more[i] * cost
            for k in range(members):
                wrong, wrong_cost = values[0, k, i] - y, values[1, k, i] - y_cost
                loss += wrong * wrong + wrong_cost * wrong_cost
                mean += values[1, k, i]
                values[0, k, i], values[1, k, i] = 2 * wrong / count, 2 * wrong_cost / count
        found[0], found[1] = loss / count, mean / (count * members)

    @compiled
    def divergences(result: Any, found: Any) -> None:
        for i in range(len(result)):
            found[i] = divergence(result, i)

    @compiled
    def lack(values: Any, first: int, chosen: Any, wanted: float, log_alpha: Any, found: Any) -> None:
        alpha, count, loss, mean = np.exp(log_alpha[0]), chosen[0], 0.0, 0.0
        for i in range(values.shape[1]):
            costliest = greatest(values, i)
            missing = wanted - values[costliest, i]
            for k in range(len(values)):
                values[k, i] = 0
            if first + i < count:
                mean += missing / count
                loss += alpha * (0.0 if missing < 0 else missing) / count  # what is not a number stays so
                values[costliest, i] = -alpha / count if missing > 0 else 0.0
        found[0], found[1] = loss, mean

    @compiled
    def gain(values: Any, threshold: float, count: int, found: Any) -> None:
        loss, mean = 0.0, 0.0
        for i in range(values.shape[2]):
            lowest_value, costliest = least(values[0], i), greatest(values[1], i)
            value, cost = values[0, lowest_value, i], values[1, costliest, i]
            safe = 1.0 if cost <= threshold else 0.0
            loss -= (safe * value - (1 - safe) * cost) / count
            mean += safe / count
            for k in range(values.shape[1]):
                values[0, k, i] = values[1, k, i] = 0
            values[0, lowest_value, i], values[1, costliest, i] = -safe / count, (1 - safe) / count
        found[0], found[1] = loss, mean

    @compiled
    def act(result: Any, spread: Any, of_actions: Any) -> None:
        width = spread.shape[1]
        for i in range(len(result)):
            for j in range(width):
                action, slope = tanh(result[i, j] + spread[i, j]), 0.0
                for k in range(len(of_actions)):
                    slope += of_actions[k, i, j]
                slope *= 1 - action * action
                within = lowest <= result[i, width + j] <= highest
                result[i, j], result[i, width + j] = slope, slope * spread[i, j] if within else 0

    return CPQPasses(draw, latents, encoded, sample, candidates, regress, divergences, lack, gain, act)
