"""Two opinions and their tests on held-out episodes become an estimate with its error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tracrl.ope.estimates import is_shown
from tracrl.ope.weighing import Opinions, best_weights, middle_half, nearby

LOGGED = np.repeat([0.0, 10.0, 20.0], 10)
"""what held-out episodes cost"""


def opinions(
    model_says: np.ndarray,
    fitted_says: np.ndarray,
    played: float,
    fitted: float,
    ood_shares: tuple[float, float] = (0.0, 0.0),
) -> Opinions:
    """Of one policy, costs alone: what the model and fitted Q evaluation say of held-out episodes and of the policy."""

    def both(costs: np.ndarray) -> np.ndarray:
        return np.stack([np.zeros_like(costs), costs], axis=-1)

    return Opinions(
        fitted=both(np.array([[fitted]])),
        played=both(np.array([[played]])),
        foretold=both(np.asarray(fitted_says, float)[None, None]),
        retraced=both(np.asarray(model_says, float)[None, None]),
        logged=both(LOGGED),
        ood_shares=np.array([[ood_shares[0]]]),
        ood_in_log=np.array([ood_shares[1]]),
        anything=np.array([1.0, 50.0]),
        most_cost=100.0,
    )


def twice(found: Opinions) -> Opinions:
    """Two members of each kind in place of one, who agree."""
    return replace(found, played=np.concatenate([found.played] * 2), retraced=np.concatenate([found.retraced] * 2))


def cost_of(found: Opinions) -> tuple[float, float]:
    estimate, error = found.weighed()
    return float(estimate[0, 1]), float(error[0, 1])


def test_the_models_weight_is_three_quarters_of_costs_at_least() -> None:
    """Fitted Q evaluation is told where episodes went, the model has to find out: whatever the test says."""
    nonsense = LOGGED[::-1]
    alone = opinions(nonsense, LOGGED, 20.0, 10.0)
    model, values = twice(opinions(LOGGED, nonsense, 20.0, 10.0)), twice(alone)
    assert (model.weight[0, 1], values.weight[0, 1]) == (1.0, 0.75)
    assert cost_of(model) == (pytest.approx(20.0), pytest.approx(0.0, abs=1e-3))
    assert cost_of(values)[1] > 5, "the model's test is nonsense: nothing is sure"
    assert alone.weight[0, 1] == 0.0, "of a single member nobody knows whether it is led astray"


def test_above_that_two_opinions_share_the_weight_as_they_foretell_together_best() -> None:
    """Off by 1 and by −4 in every second episode: with weights of 0.8 and 0.2 by nothing; by 1 and −9, 0.9 and 0.1."""
    once = np.tile([1.0, -1.0], 15)
    found = twice(opinions(LOGGED + once, LOGGED - 4 * once, 12.0, 7.0))
    assert found.weight[0, 1] == pytest.approx(0.8, abs=1e-3)
    assert found.skill[0, 1] == pytest.approx(1.0)
    assert cost_of(found)[0] == pytest.approx(12.0, abs=0.1), "the middle half of the votes"
    found = twice(opinions(LOGGED + once, LOGGED - 9 * once, 12.0, 7.0))
    assert found.weight[0, 1] == pytest.approx(0.9, abs=1e-3)


def test_of_returns_the_lower_opinion_has_all_the_weight_whichever_foretells_logged_actions() -> None:
    nonsense = LOGGED[::-1]
    for fitted in (LOGGED, nonsense):
        assert of_returns(opinions(nonsense, fitted, 12.0, 7.0)).weight[0, 0] == 0.0
        assert of_returns(opinions(nonsense, fitted, 7.0, 12.0)).weight[0, 0] == 1.0
    assert return_of(opinions(LOGGED, LOGGED, 12.0, 7.0))[0] == pytest.approx(7.0)
    assert return_of(opinions(LOGGED, LOGGED, 7.0, 12.0))[0] == pytest.approx(7.0)


def test_a_member_that_went_astray_does_not_decide_which_opinion_is_the_lower() -> None:
    """The model's middle is 12, its mean far below the 10 of fitted Q evaluation; and the other way round."""
    astray = said_by([12.0, 12.0, 12.0, 12.0, -1000.0], opinions(LOGGED, LOGGED, 0.0, 10.0))
    assert return_of(astray)[0] == pytest.approx(10.0)
    alone = opinions(LOGGED, LOGGED, 11.0, 12.0)
    replicas = replace(
        alone,
        fitted=np.concatenate([alone.fitted] * 4 + [alone.fitted - 1000]),
        foretold=np.concatenate([alone.foretold] * 5),
    )
    assert return_of(replicas)[0] == pytest.approx(11.0)


def test_of_returns_an_opinion_that_was_not_tested_counts_for_nothing_however_low_it_is() -> None:
    untested = opinions(LOGGED, np.where(np.arange(30) == 3, np.nan, LOGGED), 12.0, 7.0)
    assert return_of(untested)[0] == pytest.approx(12.0)
    broken = two_kinds(opinions(LOGGED, LOGGED, 12.0, 20.0), opinions(np.full(30, np.inf), LOGGED, 3.0, 20.0))
    np.testing.assert_allclose(of_returns(broken).among[:, 0, 0], [1, 0])
    assert return_of(broken)[0] == pytest.approx(12.0)


def test_a_policy_that_fitted_q_evaluation_does_not_know_is_the_models() -> None:
    found = opinions(LOGGED, np.full(30, np.nan), 20.0, float("nan"))
    assert found.weight[0, 1] == 1.0
    assert cost_of(found) == (pytest.approx(20.0), pytest.approx(0.0, abs=1e-6))


def passes(found: Opinions, limit: float) -> bool:
    """At 90 % confidence."""
    estimate, error = cost_of(found)
    return bool(is_shown(np.array([estimate + 1.2816 * error]), found.out_of_data, limit)[0])


@pytest.mark.parametrize("nothing", [np.nan, np.inf])
def test_fitted_q_evaluation_that_says_no_number_of_a_policy_counts_for_nothing(nothing: float) -> None:
    """However well it foretells held-out episodes: no number is not a cost of 0."""
    found = opinions(LOGGED[::-1], LOGGED, 20.0, nothing)
    assert found.weight[0, 1] == 1.0
    assert cost_of(found)[0] > 10
    assert not passes(found, 10)
    exact = twice(opinions(LOGGED[::-1], LOGGED, 20.0, 8.0))
    broken = replace(exact, fitted=np.concatenate([exact.fitted, exact.fitted + nothing]))
    broken = replace(broken, foretold=np.concatenate([exact.foretold] * 2))
    assert (exact.weight[0, 1], broken.weight[0, 1]) == (0.75, 1.0), "one replica of two"
    assert not passes(broken, 10)


@pytest.mark.parametrize("nothing", [np.nan, np.inf])
def test_of_what_nobody_says_a_number_nothing_is_known(nothing: float) -> None:
    found = opinions(np.full(30, nothing), LOGGED, nothing, nothing)
    assert found.unknown.tolist() == [True]
    assert opinions(LOGGED, LOGGED, 20.0, 20.0).unknown.tolist() == [False]


def test_a_share_out_of_the_data_that_is_no_number_is_all_of_it() -> None:
    found = opinions(LOGGED, LOGGED[::-1], 5.0, 5.0, (float("nan"), 0.0))
    assert found.out_of_data.tolist() == [1.0]
    assert cost_of(found)[1] >= 50.0
    assert not passes(found, 1000)


@pytest.mark.parametrize("nothing", [np.nan, np.inf])
def test_a_kind_of_members_that_says_no_number_counts_for_nothing(nothing: float) -> None:
    """Of two kinds one is right; the other has left all numbers, for the policy or along held-out episodes."""
    alone = opinions(LOGGED, LOGGED[::-1], 20.0, 10.0)
    for of_policy, of_episodes in ((nothing, 0.0), (0.0, nothing)):
        broken = replace(
            alone,
            played=np.concatenate([alone.played, alone.played + of_policy]),
            retraced=np.concatenate([alone.retraced, alone.retraced + of_episodes]),
            ood_shares=np.concatenate([alone.ood_shares, alone.ood_shares + of_policy]),
        )
        assert broken.among[:, 0, 1].tolist() == [1.0, 0.0]
        assert cost_of(broken) == cost_of(alone)
        assert broken.out_of_data.tolist() == [0.0]


@pytest.mark.parametrize("nothing", [np.nan, np.inf])
def test_where_the_model_says_no_number_all_steps_count_as_out_of_the_data(nothing: float) -> None:
    """So no gate passes, whatever fitted Q evaluation says."""
    found = opinions(np.full(30, nothing), LOGGED, nothing, 10.0)
    assert found.among[:, 0, 1].tolist() == [0.0]
    assert found.weight[0, 1] == 0.0
    assert cost_of(found)[0] == pytest.approx(10.0)
    assert found.out_of_data.tolist() == [1.0]
    assert not passes(found, 1000)


def test_what_is_off_on_average_is_half_taken_off_as_far_as_episodes_are_foretold() -> None:
    """Off by 4 where the variance is 200 / 3: 0.76 of it is foretold."""
    found = opinions(LOGGED + 4, LOGGED + 4, 14.0, 14.0)
    estimate, error = cost_of(found)
    assert found.skill[0, 1] == pytest.approx(0.76)
    assert estimate == pytest.approx(14 - 0.5 * 0.76 * 4)
    assert error == pytest.approx(4 - 0.5 * 0.76 * 4), "the rest is error"
    worthless = opinions(np.full(30, 14.0), np.full(30, 14.0), 14.0, 14.0)
    assert cost_of(worthless)[0] == pytest.approx(14.0), "4 too high on average, and nothing is foretold"


def test_of_what_differs_from_episode_to_episode_half_is_error() -> None:
    apart = np.tile([3.0, -3.0], 15)
    estimate, error = cost_of(opinions(LOGGED + apart, LOGGED + apart, 10.0, 10.0))
    assert estimate == pytest.approx(10.0, abs=1.0)
    assert error == pytest.approx(4.5**0.5, rel=0.1)


def test_of_disagreement_and_test_the_larger_is_the_error() -> None:
    """Two members 3 below and above what they say together: a variance of 18."""
    two = said_by([7.0, 13.0], opinions(LOGGED, LOGGED[::-1], 10.0, 10.0))
    assert two.weight[0, 1] == pytest.approx(1.0)
    assert cost_of(two)[1] == pytest.approx(18**0.5, rel=0.01)


def test_opinions_that_are_far_apart_are_not_sure_however_well_they_foretell() -> None:
    error = np.tile([0.2, -0.2], 15)
    found = twice(opinions(LOGGED + error, LOGGED - error, 70.0, 0.0))
    assert found.weight[0, 1] == pytest.approx(0.75)
    assert cost_of(found)[1] == pytest.approx(70 * (0.75 * 0.25) ** 0.5, rel=0.01)
    one_alone = opinions(LOGGED, LOGGED[::-1], 70.0, 0.0)
    assert cost_of(one_alone)[1] < 1, "who foretells nothing casts no doubt"


def two_kinds(first: Opinions, second: Opinions, out_of_data: tuple[float, float] = (0.0, 0.0)) -> Opinions:
    """Four members, every second of the same kind; fitted Q evaluation is the first's."""
    return replace(
        first,
        played=np.concatenate([first.played, second.played] * 2),
        retraced=np.concatenate([first.retraced, second.retraced] * 2),
        ood_shares=np.array([[share] for share in out_of_data]),
    )


def test_a_kind_of_members_that_foretells_clearly_worse_counts_for_nothing() -> None:
    exact = opinions(LOGGED, LOGGED[::-1], 10.0, 0.0)
    nonsense = opinions(LOGGED[::-1], LOGGED[::-1], 90.0, 0.0)
    both = two_kinds(nonsense, exact, (0.9, 0.0))
    np.testing.assert_allclose(both.weights[:, 0, 1], [0, 0, 1], atol=1e-4)
    assert cost_of(both) == (pytest.approx(10.0, abs=0.1), pytest.approx(0.0, abs=0.5))
    assert both.out_of_data == pytest.approx([0.0]), "nor does it matter where it leads"


def test_kinds_of_members_that_foretell_about_as_well_and_agree_as_well_count_alike() -> None:
    """Off by 1 and by 1.5 in every second episode: 2.25 times as much in the square; 1.6 is 2.56 times."""
    once = np.tile([1.0, -1.0], 15)
    good, fair, poor = (opinions(LOGGED + off * once, LOGGED[::-1], 10.0, 0.0) for off in (1.0, 1.5, 1.6))
    np.testing.assert_allclose(two_kinds(good, fair).among[:, 0, 1], [0.5, 0.5])
    np.testing.assert_allclose(two_kinds(fair, good, (0.2, 0.4)).out_of_data, [0.3])
    np.testing.assert_allclose(two_kinds(good, poor).among[:, 0, 1], [1, 0])


def test_in_returns_kinds_of_members_count_by_the_inverse_of_what_they_are_off() -> None:
    """By 3 in place of 1 in every second episode: 9 times in the square; 3.2 is 10.24 times, which is left out."""
    once = np.tile([1.0, -1.0], 15)
    good, fair, poor = (opinions(LOGGED + off * once, LOGGED[::-1], 10.0, 0.0) for off in (1.0, 3.0, 3.2))
    np.testing.assert_allclose(of_returns(two_kinds(good, fair)).among[:, 0, 0], [0.75, 0.25])
    np.testing.assert_allclose(of_returns(two_kinds(good, poor)).among[:, 0, 0], [1, 0])


def said_by(costs: list[float], of: Opinions, kinds: int = 1) -> Opinions:
    """Members in place of one, who say these costs of the policy and the same of held-out episodes; the first of each
    kind come first."""
    played = np.stack([np.zeros(len(costs)), np.array(costs)], axis=-1)[:, None]
    return replace(
        of,
        played=played,
        retraced=np.concatenate([of.retraced] * len(costs)),
        ood_shares=np.zeros((kinds, 1)),
    )


def test_kinds_count_the_more_the_nearer_together_their_members_are_about_the_policy() -> None:
    """Variances of 32 and 2 between the two members of each kind: shares as 1 / 32 to 1 / 2."""
    found = said_by([6.0, 19.0, 14.0, 21.0], opinions(LOGGED, LOGGED[::-1], 10.0, 0.0), kinds=2)
    np.testing.assert_allclose(found.among[:, 0, 1], [1 / 17, 16 / 17])
    single = said_by([6.0, 19.0], opinions(LOGGED, LOGGED[::-1], 10.0, 0.0), kinds=2)
    np.testing.assert_allclose(single.among[:, 0, 1], [0.5, 0.5], err_msg="of a single member nobody knows")
    three = said_by([6.0, 19.0, 14.0], opinions(LOGGED, LOGGED[::-1], 10.0, 0.0), kinds=2)
    np.testing.assert_allclose(three.among[:, 0, 1], [0.5, 0.5], err_msg="nor beside one of two members")


def test_members_that_are_nearer_together_than_can_be_told_are_so_by_chance() -> None:
    """Half a unit of 100 is 0.5 %: variances of 0 and 8 count as 0.25 and 8."""
    found = said_by([5.0, 3.0, 5.0, 7.0], opinions(LOGGED, LOGGED, 10.0, 0.0), kinds=2)
    np.testing.assert_allclose(found._apart[:, 0], [0.25, 8.0])


def test_a_single_member_counts_as_unsure_as_the_least_sure_kind_that_counts() -> None:
    """Of six members of four kinds two are alone; a kind that foretells nothing is no measure."""
    found = said_by([5.0, 0.0, 5.0, 5.0, 9.0, 90.0], opinions(LOGGED, LOGGED, 10.0, 0.0), kinds=4)
    np.testing.assert_allclose(found._apart[:, 0], [8.0, 4050.0, 4050.0, 4050.0])
    nonsense = found.retraced.copy()
    nonsense[1::4] = nonsense[1::4][:, :, ::-1]
    left = replace(found, retraced=nonsense)
    np.testing.assert_allclose(left.alike[:, 0, 1], [1 / 3, 0, 1 / 3, 1 / 3])
    np.testing.assert_allclose(left._apart[[0, 2, 3], 0], 8.0)


def test_what_is_said_of_a_policy_does_not_depend_on_what_else_is_estimated() -> None:
    every = [
        said_by(costs, opinions(LOGGED, LOGGED, 10.0, 0.0), kinds=2) for costs in ([5.0, 1, 6, 9], [3.0, 7, 90, 7])
    ]
    parts = {
        name: np.concatenate([getattr(one, name) for one in every], axis=1)
        for name in ("fitted", "played", "foretold", "retraced", "ood_shares")
    }
    together = replace(every[0], **parts, ood_in_log=np.zeros(2))
    for i, one in enumerate(every):
        for mine, both in zip(one.weighed(), together.weighed(), strict=True):
            np.testing.assert_allclose(both[i], mine[0])


def test_for_returns_it_does_not_matter_how_near_together_members_of_a_kind_are() -> None:
    """Both kinds are off by 2 along held-out episodes."""
    found = said_by([6.0, 19.0, 14.0, 21.0], opinions(LOGGED + 2, LOGGED[::-1], 10.0, 0.0), kinds=2)
    parts = {name: np.repeat(getattr(found, name)[..., 1:], 2, axis=-1) for name in ("played", "retraced", "logged")}
    np.testing.assert_allclose(replace(found, **parts).among[:, 0], [[0.5, 1 / 17], [0.5, 16 / 17]])


def test_where_kinds_lead_out_of_the_data_counts_as_they_do() -> None:
    """For costs as they agree, for the doubt about returns alike."""
    found = said_by([6.0, 19.0, 14.0, 21.0], opinions(LOGGED, LOGGED[::-1], 10.0, 0.0), kinds=2)
    found = replace(found, ood_shares=np.array([[0.51], [0.17]]))
    assert found.out_of_data[0] == pytest.approx((0.51 + 16 * 0.17) / 17)
    assert found._anywhere()[0] == pytest.approx([2 * 0.34, (0.51 + 16 * 0.17) / 17], abs=1e-4)


def test_weights_are_the_best_of_all() -> None:
    generator = np.random.default_rng(0)
    errors = generator.normal(size=(3, 5, 40, 2)) * generator.uniform(0.2, 2, (3, 5, 1, 2))
    errors[2, 0] = np.nan
    found = best_weights(errors)
    np.testing.assert_allclose(found.sum(axis=0), 1)
    assert (found >= 0).all()
    assert (found[2, 0] == 0).all()
    grid = [np.array([a, b, 20 - a - b]) / 20 for a in range(21) for b in range(21 - a)]

    def off(weights: np.ndarray) -> np.ndarray:
        return np.square((weights[:, :, None] * errors[:, 1:]).sum(axis=0)).mean(axis=1)

    least = np.min([off(np.broadcast_to(one[:, None, None], (3, 4, 2))) for one in grid], axis=0)
    assert (off(found[:, 1:]) <= least + 1e-4).all()


def test_steps_out_of_the_data_may_bring_anything_as_far_as_who_leads_there_is_believed() -> None:
    nonsense = LOGGED[::-1]
    believed, not_believed = (
        twice(opinions(m, v, 20.0, 20.0, (0.5, 0.0))) for m, v in ((LOGGED, nonsense), (nonsense, LOGGED))
    )
    anywhere = [found._anywhere()[0, 1] for found in (believed, not_believed)]
    assert anywhere == pytest.approx([0.5, 0.75 * 0.5]), "of fitted Q evaluation's quarter, none"
    assert cost_of(believed)[1] == pytest.approx(0.5 * 50)
    in_log_alone = twice(opinions(nonsense, LOGGED, 20.0, 20.0, (0.0, 0.5)))
    assert in_log_alone._anywhere()[0, 1] == 0, "it may never get there"
    in_both = twice(opinions(nonsense, LOGGED, 20.0, 20.0, (0.5, 0.5)))
    assert in_both._anywhere()[0, 1] == pytest.approx(0.5)


def of_returns(found: Opinions) -> Opinions:
    """The same said of returns, of which costs take the place."""
    turned = ("fitted", "played", "foretold", "retraced", "logged", "anything")
    return replace(found, **{name: getattr(found, name)[..., ::-1] for name in turned})


def return_of(found: Opinions) -> tuple[float, float]:
    estimate, error = of_returns(found).weighed()
    return float(estimate[0, 0]), float(error[0, 0])


def test_returns_are_unsure_by_what_opinions_are_apart_whichever_foretells_logged_actions() -> None:
    """Fitted Q evaluation says 8 of the policy and the model 20, each 6 from their middle."""
    found = opinions(LOGGED[::-1], LOGGED, 20.0, 8.0)
    assert return_of(found)[1] >= 6.0
    for fitted in (LOGGED, LOGGED[::-1]):
        both = opinions(LOGGED, fitted, 20.0, 8.0)
        assert of_returns(both)._believed()[:, 0, 0] == pytest.approx([0.5, 0.5])
        assert return_of(both)[1] == pytest.approx(6.0)
    assert return_of(opinions(LOGGED, LOGGED, 20.0, 20.0))[1] == pytest.approx(0.0, abs=1e-3)


def test_a_return_that_one_opinion_alone_knows_is_as_unsure_as_that_one() -> None:
    memory = opinions(LOGGED, np.full(30, np.nan), 20.0, float("nan"))
    assert return_of(memory) == (pytest.approx(20.0), pytest.approx(0.0, abs=1e-6))
    untested = opinions(LOGGED, np.full(30, np.nan), 20.0, 1000.0)
    assert return_of(untested) == (pytest.approx(20.0), pytest.approx(0.0, abs=1e-6)), "as its weight says"
    no_model = opinions(np.full(30, np.nan), LOGGED, np.nan, 8.0)
    assert return_of(no_model) == (pytest.approx(8.0), pytest.approx(2 * 50.0)), "all steps are out of the data"


def test_steps_out_of_the_data_make_returns_unsure_whoever_is_believed() -> None:
    for fitted in (LOGGED[::-1], LOGGED):
        assert return_of(opinions(LOGGED, fitted, 20.0, 20.0, (0.1, 0.0)))[1] == pytest.approx(2 * 0.1 * 50.0)
    trusted = opinions(LOGGED[::-1], LOGGED, 20.0, 20.0, (0.1, 0.0))
    assert of_returns(trusted)._anywhere()[0, 0] == pytest.approx(2 * 0.1)


def test_for_returns_those_members_count_that_lead_further_out_of_the_data() -> None:
    """Of two kinds one counts for returns and the other for costs."""
    right, wrong = opinions(LOGGED, LOGGED, 20.0, 20.0), opinions(LOGGED + 5, LOGGED, 20.0, 20.0)
    kinds = two_kinds(right, wrong, (0.1, 0.3))
    crossed = replace(kinds, retraced=np.stack([kinds.retraced[::-1, ..., 1], kinds.retraced[..., 1]], axis=-1))
    crossed = replace(crossed, logged=np.stack([LOGGED, LOGGED], axis=1), anything=np.array([50.0, 50.0]))
    np.testing.assert_allclose(crossed.alike[:, 0], [[0, 1], [1, 0]])
    assert crossed.weighed()[1][0, 0] >= 2 * 0.3 * 50.0


def test_what_cannot_be_told_from_nothing_is_nothing() -> None:
    seen = np.where(LOGGED == 0, 0.6, LOGGED)
    estimate, error = cost_of(opinions(seen, seen, 0.5, 0.5))
    assert estimate == 0
    assert 0.2 < error < 1, "the error holds what was left out"
    assert cost_of(opinions(seen, seen, 3.0, 3.0))[0] > 2


def test_costs_are_never_negative() -> None:
    assert cost_of(opinions(LOGGED + 6, LOGGED + 6, 1.5, 1.5))[0] == 0


def test_a_few_members_that_go_astray_count_for_nothing() -> None:
    votes = np.array([3.0, 0.0, 1.0, 100.0])
    assert middle_half(votes, np.full(4, 0.25)) == 2.0
    # Half a vote at 0 and half a vote at 8: a quarter of either lies in the middle.
    assert middle_half(np.array([8.0, 0.0]), np.array([0.5, 0.5])) == 4.0
    assert middle_half(np.array([8.0, 0.0]), np.array([1.0, 0.0])) == 8.0


def test_episodes_alone_that_are_near_tell_the_error() -> None:
    """Half of 30 logged episodes cost nothing and are foretold so; the others are off by 50 in either direction."""
    logged = np.stack([np.arange(30.0), np.repeat([0.0, 150.0], 15)], axis=1)
    off = np.stack([np.zeros(30), np.repeat([0.0, 50.0], 15) * np.tile([1, -1], 15)], axis=1)
    both = np.stack([logged + off] * 2)
    mean, variance = nearby(both, logged, np.array([[0.0, 0.0], [0.0, 150.0]]))
    assert variance[0, 1] < 1e-9
    # All 15 are equally near, eight above and seven below.
    assert mean[1, 1] ** 2 == pytest.approx((50 / 15) ** 2)
    assert variance[1, 1] == pytest.approx(50.0**2 - (50 / 15) ** 2)


def test_at_a_cost_of_nothing_far_episodes_lend_it_little_of_their_errors() -> None:
    """Off by half of what is foretold: at 0 all neighbours lie above it."""
    foretold = np.stack([np.zeros(60), np.arange(60.0)], axis=1)
    mean, variance = nearby(np.stack([foretold] * 2), foretold / 2, np.array([[0.0, 0.0], [0.0, 30.0]]))
    flat = np.arange(20.0) / 2
    assert mean[0, 1] ** 2 + variance[0, 1] / 2 < (flat.mean() ** 2 + flat.var() / 2) / 2
    assert mean[1, 1] == pytest.approx(15.0, rel=0.05)


def test_nothing_is_added_to_nothing() -> None:
    """Held-out episodes that cost 10 are foretold to cost 0 as those that cost nothing are: that is error alone."""
    missed = np.where(LOGGED == 10.0, 0.0, LOGGED)
    estimate, error = cost_of(opinions(missed, missed, 0.0, 0.0))
    assert estimate == 0.0
    assert error > 5.0
    assert cost_of(opinions(missed, missed, 5.0, 5.0))[0] > 5.0
