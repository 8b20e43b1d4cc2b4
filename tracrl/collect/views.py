"""What a learned behaviour sees of an observation, where something else than the numbers themselves is easier to learn.

An ant on a circle has to walk in every direction of the world, and each would be learned by itself. Seen from the
circle, all of them are one. Only what acts sees it so: observations are recorded as the simulator gives them.
"""

from __future__ import annotations

import numpy as np

from tracrl.collect.behaviour import Floats, View

RADIUS, LINE = 0.7, 0.6
"""Of the circle that pays most, and how far from the middle the lines are, in the observation's unit of 10 m."""
_HEIGHT, _VELOCITY, _QUATERNION, _SPIN, _REST = 2, 3, 6, 10, 13


def ant_on_circle(observation: Floats) -> Floats:
    """(…, 34) → (…, 37): the ant's state with the x axis along the circle (clockwise), and where on it the ant is.

    The place is told by what a half turn of the world leaves as it is, since that changes neither rewards nor costs:
    the distance from the circle, how far |x| is beyond the lines, and twice the angle.
    """
    x, y = observation[..., 0], observation[..., 1]
    distance = np.maximum(np.hypot(x, y), np.float32(1e-6))
    out_x, out_y = x / distance, y / distance
    parts = np.empty((*observation.shape[:-1], 37), np.float32)
    # Its own forward and upward directions: a quaternion has two signs, and jumps from one to the other.
    a, b, c, d = (observation[..., _QUATERNION + part] for part in range(4))
    forward = 1 - 2 * (b * b + c * c), 2 * (a * b + c * d), 2 * (a * c - b * d)
    upward = 2 * (a * c + b * d), 2 * (b * c - a * d), 1 - 2 * (a * a + b * b)
    velocity, spin = ([observation[..., start + axis] for axis in range(3)] for start in (_VELOCITY, _SPIN))
    for start, (along_x, along_y, up) in zip((0, 3, 6, 9), (velocity, spin, forward, upward), strict=True):
        parts[..., start] = along_x * out_y - along_y * out_x  # along the circle
        parts[..., start + 1] = along_x * out_x + along_y * out_y  # away from the middle
        parts[..., start + 2] = up
    parts[..., 12] = observation[..., _HEIGHT]
    parts[..., 13:33] = observation[..., _REST : _REST + 20]
    parts[..., 33] = distance - RADIUS
    parts[..., 34] = np.abs(x) - LINE
    parts[..., 35] = out_x * out_x - out_y * out_y
    parts[..., 36] = 2 * out_x * out_y
    return parts


VIEWS: dict[str, View] = {"AntCircle": ant_on_circle}
"""By task; the others see the observation itself."""
