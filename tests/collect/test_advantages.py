from __future__ import annotations

import numpy as np

from tracrl.collect.advantages import advantages


def test_by_hand() -> None:
    # γ = 0.5, λ = 0.5, so errors are summed with weights 1, ¼, 1/16.
    # Episode one, two steps, cut by time, value 8 after its end:
    #   δ₁ = 1 + ½·4 − 2 = 1      δ₂ = 2 + ½·8 − 4 = 2      A₂ = 2   A₁ = 1 + ¼·2 = 1.5
    # Episode two, three steps, terminated, so that the 100 after its end does not count:
    #   δ₁ = 0 + ½·2 − 1 = 0      δ₂ = 1 + ½·6 − 2 = 2      δ₃ = 3 − 6 = −3
    #   A₃ = −3   A₂ = 2 − ¾ = 1.25   A₁ = 0 + ¼·1.25 = 0.3125
    found = advantages(
        np.array([[1.0], [2], [0], [1], [3]]),
        np.array([[2.0], [4], [1], [2], [6]]),
        np.array([[8.0], [100]]),
        np.array([2, 3]),
        np.array([False, True]),
        discount=0.5,
        trace=0.5,
    )
    np.testing.assert_allclose(found[:, 0], [1.5, 2, 0.3125, 1.25, -3])


def test_without_a_trace_it_is_the_error_and_with_a_full_one_the_return_less_the_value() -> None:
    generator = np.random.default_rng(0)
    signal, values = generator.normal(size=(6, 2)), generator.normal(size=(6, 2))
    final = generator.normal(size=(1, 2))
    whole = {"lengths": np.array([6]), "terminated": np.array([False])}
    following = np.concatenate([values[1:], final])
    found = advantages(signal, values, final, **whole, discount=0.9, trace=0.0)
    np.testing.assert_allclose(found, signal + 0.9 * following - values)
    returns = [sum(0.9 ** (k - t) * signal[k] for k in range(t, 6)) + 0.9 ** (6 - t) * final[0] for t in range(6)]
    found = advantages(signal, values, final, **whole, discount=0.9, trace=1.0)
    np.testing.assert_allclose(found, np.array(returns) - values)
