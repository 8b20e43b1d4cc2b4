"""How much better an action was than the policy's average, for rewards and for costs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


def advantages(
    signal: NDArray[np.floating],
    values: NDArray[np.floating],
    final_values: NDArray[np.floating],
    lengths: NDArray[np.int64],
    terminated: NDArray[np.bool_],
    *,
    discount: float,
    trace: float,
) -> Doubles:
    """Generalised advantage estimates (Schulman et al. 2016, equation 16) of rows of whole episodes.

    ``signal`` and ``values`` are (rows, k), ``final_values`` (episodes, k) belong to what followed the last actions:
    an episode that was cut by the time limit would have gone on there, one that terminated would not.
    """
    episodes, width = len(lengths), signal.shape[1]
    longest = int(lengths.max())
    # Episodes side by side, aligned at their ends, so that one pass backwards in time serves all of them.
    inside = np.arange(longest) >= longest - lengths[:, None]
    padded_signal = np.zeros((episodes, longest, width))
    padded_values = np.zeros((episodes, longest + 1, width))
    padded_signal[inside] = signal
    padded_values[:, :-1][inside] = values
    padded_values[:, -1] = np.where(terminated[:, None], 0.0, final_values)
    errors = padded_signal + discount * padded_values[:, 1:] - padded_values[:, :-1]
    running = np.zeros((episodes, width))
    for t in range(longest - 1, -1, -1):
        running = errors[:, t] + discount * trace * running
        errors[:, t] = running
    return errors[inside]
