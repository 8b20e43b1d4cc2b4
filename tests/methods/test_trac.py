"""TraC against numbers worked out from the paper's equations, not from our own code."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.conftest import make_small_data
from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError
from tracrl.methods.method import ActivationBudget, Compute, RunSpec
from tracrl.methods.segments import segments_at_once
from tracrl.methods.trac import BATCH_STREAM, TraC, TraCLearner
from tracrl.methods.trac_losses import classification_loss, cloning_loss, score, weights
from tracrl.nets import random
from tracrl.nets.stacked import DROPOUT_STREAM
from tracrl.train import stack
from tracrl.train.stack import compute_on

SMALL = TraC(updates=12, clone_updates=4, batch_size=6, hidden=(16, 16), warmup=4, lr=1e-3, bc_lr=1e-3)


def learner(
    method: TraC,
    data: Episodes,
    *runs: RunSpec,
    dtype: torch.dtype = torch.float32,
    budget: ActivationBudget | None = None,
) -> TraCLearner:
    stack = method.learner(data, runs or [RunSpec(4.0, 0)], Compute(activation_budget=budget))
    if dtype == torch.float64:
        stack.double()
        stack.observations, stack.actions = stack.observations.double(), stack.actions.double()
        stack.table.weight = stack.table.weight.double()
        stack.discount = stack.method.gamma ** stack.table.steps.double()
        stack.lambda_d, stack.lambda_u = stack.lambda_d.double(), stack.lambda_u.double()
    return stack


def test_score_by_hand() -> None:
    # α = 0.5, γ = 0.9, two steps: 0.5 · (1 · (−1 − (−2)) + 0.9 · (−3 − (−1))) = 0.5 · (1 − 1.8) = −0.4
    psi = score(torch.tensor([[-1.0, -3.0]]), torch.tensor([[-2.0, -1.0]]), torch.tensor([1.0, 0.9]), 0.5)
    assert psi.item() == pytest.approx(-0.4)


def test_loss_by_hand() -> None:
    # One desirable segment with ψ = 1, w = 0.8, λ_d = 1; one undesirable with ψ = 2, w = 1, λ_u = 0.25.
    loss = classification_loss(
        torch.tensor([[1.0, 2.0]]),
        torch.tensor([[1.0, 0.0]]),
        torch.tensor([[0.8, 1.0]]),
        torch.tensor([1.0]),
        torch.tensor([0.25]),
    )
    attract = 0.8 * math.log(1 / (1 + math.exp(-1)))
    repel = 0.25 * math.log(1 - 1 / (1 + math.exp(-2)))
    assert loss.item() == pytest.approx(-(attract + repel) / 2, rel=1e-6)


def test_loss_has_a_gradient_where_probabilities_underflow() -> None:
    psi = torch.tensor([[-200.0, 200.0]], requires_grad=True)
    one = torch.ones(1)
    loss = classification_loss(psi, torch.tensor([[1.0, 0.0]]), torch.ones(1, 2), one, one)
    loss.sum().backward()
    assert psi.grad is not None
    assert psi.grad.tolist() == [[-0.5, 0.5]]


def test_cloning_loss_leaves_out_what_lies_behind_the_end() -> None:
    loss = cloning_loss(torch.tensor([[[-1.0, -2.0], [-4.0, -100.0]]]), torch.tensor([[[1.0, 1.0], [1.0, 0.0]]]))
    assert loss.item() == pytest.approx(7 / 3)


@pytest.mark.parametrize(
    ("eta_means", "expected"),
    [("undesirable_over_desirable", (1.0, 0.25 * 30 / 60)), ("desirable_over_undesirable", (15 / 45, 30 / 45))],
)
def test_balance_by_hand(eta_means: str, expected: tuple[float, float]) -> None:
    # N_d = 30, N_u = 60, η = 0.25. As printed: λ_d = ηN_u / (N_d + ηN_u) = 15 / 45, and λ_d + λ_u = 1.
    method = TraC(eta=0.25, eta_means=eta_means)  # type: ignore[arg-type]
    assert method.balance(30, 60) == pytest.approx(expected)


@pytest.mark.parametrize("dropout", [0.0, 0.25])
@pytest.mark.parametrize(("ratio", "sides"), [(1.0, "both"), (0.5, "both"), (1.0, "desirable"), (1.0, "undesirable")])
def test_loss_and_gradient_agree_with_the_equations_in_float64(dropout: float, ratio: float, sides: str) -> None:
    """The whole update's loss, segment by segment and step by step, straight from the paper."""
    data = make_small_data()
    method = replace(SMALL, dropout=dropout, ratio=ratio, sides=sides, clone_updates=0)  # type: ignore[arg-type]
    run = RunSpec(4.0, 3)
    stack = learner(method, data, run, dtype=torch.float64)
    with torch.no_grad():  # away from the reference, so that scores are not zero
        for parameter in stack.network.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    layers = [(w.clone().requires_grad_(), b.clone().requires_grad_()) for w, b in stack.network.weights()]
    reference = stack.frozen.weights()
    for (w, b), layer in zip(reference, stack.network.layers, strict=True):
        assert w.shape == layer.weight.shape
        assert b.shape == layer.bias.shape

    def network(
        s: torch.Tensor, masks: list[torch.Tensor] | None, layers: list[tuple[torch.Tensor, torch.Tensor]]
    ) -> torch.Tensor:
        for i, (w, b) in enumerate(layers):
            s = s @ w[0] + b[0, 0]
            if i < len(layers) - 1:
                s = s.clamp(min=0)
                if masks is not None:
                    s = s * masks[i] / 0.75
        return torch.tanh(s)

    parts = method.partition(data, run)
    labels = parts.labels
    start, stop = {
        "both": (0, parts.desirable + parts.undesirable),
        "desirable": (0, parts.desirable),
        "undesirable": (parts.desirable, parts.desirable + parts.undesirable),
    }[sides]
    key = random.keys(torch.tensor([run.seed]), torch.tensor(0), BATCH_STREAM)
    drawn = start + random.below(key, torch.tensor([stop - start]), method.batch_size)[0]
    horizon = parts.segments.horizon
    masks = None
    if dropout:
        masks = [
            random.random_bytes(
                random.keys(torch.tensor([run.seed]), torch.tensor(0), DROPOUT_STREAM + i),
                method.batch_size * horizon * 16,
            ).view(method.batch_size, horizon, 16)
            >= 64
            for i in range(2)
        ]
    states = torch.from_numpy(data.observations).double()
    actions = torch.from_numpy(data.actions).clamp(-(1 - 1e-5), 1 - 1e-5).double()
    lambda_d, lambda_u = 1.0, method.eta * parts.desirable / parts.undesirable
    total = torch.zeros((), dtype=torch.float64)
    for b, segment in enumerate(drawn.tolist()):
        psi = torch.zeros((), dtype=torch.float64)
        for t in range(int(parts.segments.length[segment])):
            row = int(parts.segments.first[segment]) + t
            step_masks = None if masks is None else [m[b, t].double() for m in masks]
            log_pi = -((network(states[row], step_masks, layers) - actions[row]) ** 2).sum()
            log_ref = -((network(states[row], None, reference) - actions[row]) ** 2).sum()
            psi = psi + method.alpha * method.gamma**t * (log_pi - log_ref)
        y, w = int(labels[segment]), float(weights(parts, method.delta)[segment])
        probability = torch.sigmoid(psi)
        total = total - (
            lambda_d * w * y * torch.log(probability) + lambda_u * w * (1 - y) * torch.log(1 - probability)
        )
    expected = total / method.batch_size
    expected_gradient = torch.autograd.grad(expected, [t for pair in layers for t in pair])

    stack.log_ref = stack.reference_log_probs()
    batch = stack.table.draw(stack.key(BATCH_STREAM), stack.classified)
    psi = stack.scores(batch)
    loss = classification_loss(psi, batch.desirable, batch.weight, stack.lambda_d, stack.lambda_u)
    gradient = torch.autograd.grad(loss.sum(), list(stack.network.parameters()))
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    for mine, theirs in zip(gradient, expected_gradient, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6, rtol=0)


def test_gradient_agrees_with_finite_differences() -> None:
    stack = learner(replace(SMALL, clone_updates=0), make_small_data(), dtype=torch.float64)
    stack.log_ref = stack.reference_log_probs()
    batch = stack.table.draw(stack.key(BATCH_STREAM), stack.classified)

    def loss() -> torch.Tensor:
        psi = stack.scores(batch)
        return classification_loss(psi, batch.desirable, batch.weight, stack.lambda_d, stack.lambda_u).sum()

    weight = stack.network.layers[1].weight
    (gradient,) = torch.autograd.grad(loss(), [weight])
    with torch.no_grad():
        for i, j in ((0, 0), (3, 5), (15, 2)):
            old, h = weight[0, i, j].item(), 1e-6
            values = []
            for sign in (1, -1):
                weight[0, i, j] = old + sign * h
                values.append(loss().item())
            weight[0, i, j] = old
            assert gradient[0, i, j].item() == pytest.approx((values[0] - values[1]) / (2 * h), abs=1e-7)


@pytest.mark.parametrize(("at_once", "sizes"), [(5, [3, 3]), (1, [1] * 6)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_in_chunks_trains_the_same_weights(at_once: int, sizes: list[int], dtype: torch.dtype) -> None:
    """In both phases, dropout on: the masks are those of the whole batch."""
    data, runs = make_small_data(), [RunSpec(3.0, 0), RunSpec(4.0, 10)]
    whole = learner(SMALL, data, *runs, dtype=dtype)
    segment = sum(SMALL.hidden) * len(whole.table.steps)
    chunked = learner(SMALL, data, *runs, dtype=dtype, budget=ActivationBudget(at_once * segment, uncut=0))
    batch = chunked.table.draw(chunked.key(BATCH_STREAM), chunked.cloned)
    assert [part.rows.shape[1] for part in chunked.table.chunks(batch)] == sizes
    assert len(list(whole.table.chunks(batch))) == 1
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for _ in range(SMALL.updates):
        expected, metrics = whole.update(), chunked.update()
        for name, values in expected.items():
            assert torch.allclose(metrics[name], values, atol=tolerance), name
    for name, tensor in whole.state_dict().items():
        assert torch.allclose(chunked.state_dict()[name], tensor, atol=tolerance), name


@pytest.mark.parametrize(
    ("batch", "steps", "hidden", "expected"),
    [
        (96, 100, (256, 256), (96, 96, 96)),  # BallRun
        (96, 500, (256, 256), (6, 14, 48)),  # AntCircle
        (96, 750, (256, 256), (4, 9, 32)),  # PointGoal
        (10, 100_005, (12, 6), (4, 4, 8)),  # not 1, so that masks begin with whole words of eight bytes
        (3, 10_000_000, (3,), (1, 1, 1)),  # at least a segment, however long
    ],
)
def test_chunks_follow_from_shapes(
    batch: int, steps: int, hidden: tuple[int, ...], expected: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, and on a GPU that may hold 2²⁵ or 2²⁷ numbers, with nine runs and float32 or bfloat16 products."""
    monkeypatch.setattr(stack, "gpu_activations", lambda _, bf16: 2**27 if bf16 else 2**25)
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    computes = compute_on(cpu, 9), compute_on(gpu, 9), compute_on(gpu, 9, "bfloat16")
    assert tuple(segments_at_once(batch, steps, hidden, c.activation_budget) for c in computes) == expected


def test_a_gpus_chunks_follow_from_its_memory() -> None:
    """A 64th of it, and never less than 256 MiB; in bfloat16 a number takes half."""
    small, large = 8 * 2**30, 140 * 2**30
    assert [stack.activations_within(small, bf16) for bf16 in (False, True)] == [2**26, 2**27]
    assert [stack.activations_within(large, bf16) for bf16 in (False, True)] == [35 * 2**24, 35 * 2**25]


def test_a_run_in_a_stack_is_the_run_alone() -> None:
    data = make_small_data()
    runs = [RunSpec(3.0, 0), RunSpec(4.0, 0), RunSpec(4.0, 10)]
    together = learner(replace(SMALL, ratio=0.6), data, *runs)
    alone = [learner(replace(SMALL, ratio=0.6), data, run) for run in runs]
    for _ in range(SMALL.updates):
        metrics = together.update()
        for r, single in enumerate(alone):
            assert torch.allclose(metrics["loss"][r], single.update()["loss"][0], atol=1e-5)
    for name, tensor in together.state_dict().items():
        for r, single in enumerate(alone):
            assert torch.allclose(tensor[r], single.state_dict()[name][0], atol=1e-5), name


def test_every_saved_tensor_has_the_runs_first(small_data: Episodes) -> None:
    stack = learner(SMALL, small_data, RunSpec(3.0, 0), RunSpec(4.0, 1))
    assert all(len(tensor) == 2 for tensor in stack.state_dict().values())


def test_the_reference_is_the_cloned_policy_and_stays_as_it_is(small_data: Episodes) -> None:
    stack = learner(SMALL, small_data)
    for _ in range(SMALL.clone_updates):
        stack.update()
    cloned = [t.clone() for t in stack.network.parameters()]
    stack.update()
    assert stack.log_ref is not None
    before = stack.log_ref.clone()
    for _ in range(3):
        stack.update()
    assert all(torch.equal(a, b) for a, b in zip(stack.frozen.parameters(), cloned, strict=True))
    assert torch.equal(stack.log_ref, before)
    mean = stack.frozen(stack.observations[None])
    assert torch.allclose(before, -((mean - stack.actions) ** 2).sum(-1), atol=1e-6)
    assert not all(torch.equal(a, b) for a, b in zip(stack.network.parameters(), cloned, strict=True))


def test_classification_begins_with_scores_near_zero_and_a_fresh_optimiser(small_data: Episodes) -> None:
    stack = learner(replace(SMALL, dropout=0.0), small_data)
    for _ in range(SMALL.clone_updates):
        stack.update()
    metrics = stack.update()
    assert abs(float(metrics["score"])) < 1e-6
    assert stack.adam.count.tolist() == [1.0]


def test_the_rate_rises_over_the_warm_up(small_data: Episodes) -> None:
    stack = learner(SMALL, small_data)
    for step, expected in ((4, 0.25e-3), (5, 0.5e-3), (7, 1e-3), (11, 1e-3)):
        stack.clock.fill_(step)
        assert float(stack.lr()) == pytest.approx(expected)


def test_uniform_reference_is_a_constant(small_data: Episodes) -> None:
    stack = learner(replace(SMALL, reference="uniform"), small_data)
    assert not stack.reference_log_probs().any()


def test_without_pretraining_the_reference_is_the_first_network(small_data: Episodes) -> None:
    stack = learner(replace(SMALL, clone_updates=0), small_data)
    first = [t.clone() for t in stack.network.parameters()]
    stack.update()
    assert all(torch.equal(a, b) for a, b in zip(stack.frozen.parameters(), first, strict=True))
    assert stack.phase == "classification"


def test_cloning_on_everything_draws_what_classification_leaves_out(small_data: Episodes) -> None:
    labelled = learner(SMALL, small_data).cloned[1]
    everything = learner(replace(SMALL, clone_on="all"), small_data).cloned[1]
    assert int(labelled) < int(everything) == len(small_data)


def test_short_episodes_are_padded_with_rows_that_do_not_count(small_data: Episodes) -> None:
    stack = learner(SMALL, small_data)
    batch = stack.table.draw(stack.key(BATCH_STREAM), stack.classified)
    ends = np.searchsorted(small_data.offsets, batch.rows[0].numpy(), side="right")
    assert (ends == ends[:, :1]).all(), "a segment never runs into the next episode"
    valid = batch.valid[0].sum(-1).int().tolist()
    assert valid == [int(small_data.lengths[e - 1]) for e in ends[:, 0]]


def test_training_draws_the_policy_to_the_desirable_and_away_from_the_undesirable(small_data: Episodes) -> None:
    method = TraC(updates=300, clone_updates=100, batch_size=16, hidden=(32, 32), warmup=20, lr=3e-3, bc_lr=3e-3)
    stack = learner(method, small_data)
    parts = method.partition(small_data, RunSpec(4.0, 0))

    def distance(segments: slice) -> float:
        rows = np.concatenate([np.arange(*small_data.offsets[e : e + 2]) for e in parts.segments.episode[segments]])
        acted = stack.policy()[0].act(small_data.observations[rows])
        return float(((acted - small_data.actions[rows]) ** 2).sum(-1).mean())

    desirable = slice(0, parts.desirable)
    undesirable = slice(parts.desirable, parts.desirable + parts.undesirable)
    for _ in range(method.clone_updates):
        stack.update()
    cloned = distance(desirable), distance(undesirable)
    for _ in range(method.updates - method.clone_updates):
        stack.update()
    assert distance(desirable) < 0.9 * cloned[0]
    assert distance(undesirable) > 1.1 * cloned[1]


def test_settings_of_the_suites_are_the_published_ones() -> None:
    bullet, safety, metadrive = (TraC.preset(s) for s in ("Bullet", "SafetyGymnasium", "MetaDrive"))
    assert bullet == TraC()
    assert (safety.ratio, safety.alpha, safety.gamma, safety.eta, safety.x, safety.y) == (0.75, 0.1, 0.99, 0.5, 50, 50)
    assert (metadrive.updates, metadrive.clone_updates, metadrive.ratio) == (200_000, 60_000, 0.25)
    assert (metadrive.alpha, metadrive.gamma, metadrive.eta, metadrive.x, metadrive.y) == (0.2, 1.0, 0.25, 25, 0)
    assert TraC.preset("MetaDrive", "fast").ratio == 0.25


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("gamma", 1.5, "--gamma is 1.5; expected a discount above 0 and up to 1"),
        ("ratio", 0.0, "--ratio is 0.0"),
        ("y", 60.0, "--y is 60.0; expected per cent from 0 to 50"),
        ("clone_updates", 200_000, "--clone-updates is 200000; expected 0 to --updates (100000)"),
        ("batch_size", 0, "--batch-size is 0"),
        ("delta", -0.1, "--delta is -0.1"),
    ],
)
def test_bad_settings_are_named(setting: str, value: float, words: str) -> None:
    with pytest.raises(TracrlError) as error:
        TraC(**{setting: value})  # type: ignore[arg-type]
    assert words in str(error.value)


def test_fewer_safe_segments_than_a_batch_are_drawn_again(small_data: Episodes) -> None:
    """Batches are drawn with replacement: no reason to refuse, but one to say how few there are."""
    with pytest.warns(UserWarning, match=r"Only \d+ segments are safe at cost limit 3, fewer than a batch of 60"):
        stack = learner(replace(SMALL, batch_size=60), small_data, RunSpec(3.0, 0))
    for _ in range(SMALL.updates):
        assert stack.update()["loss"].isfinite().all()


@pytest.mark.parametrize(
    ("limit", "words"), [(-0.0, "No episode is safe at cost limit"), (99.0, "Every episode is safe")]
)
def test_limits_that_divide_nothing_are_said(limit: float, words: str) -> None:
    data = make_small_data()
    bold = data.select(np.flatnonzero(data.total_costs > 0))
    with pytest.raises(TracrlError, match=words):
        learner(SMALL, bold, RunSpec(limit, 0))
