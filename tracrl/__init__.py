"""Offline safe reinforcement learning: from logged episodes to a safe policy.

>>> import tracrl
>>> data = tracrl.load_dataset("BallRun")
>>> run = tracrl.fit(tracrl.TraC.preset("Bullet", "fast"), data, limits=[10, 20, 40], seeds=[0])
>>> scores = tracrl.evaluate(run.policy, "BallRun", episodes=20)
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # as typing has it, which is not loaded here: the command line answers an interrupt the sooner
if TYPE_CHECKING:
    from typing import Any

    from tracrl.data.episodes import Episodes as Episodes
    from tracrl.data.locate import load_dataset as load_dataset
    from tracrl.data.sources import import_episodes as import_episodes
    from tracrl.deploy.export import export as export
    from tracrl.envs.make import make_env as make_env
    from tracrl.envs.make import make_vec_env as make_vec_env
    from tracrl.errors import TracrlError as TracrlError
    from tracrl.evaluation.evaluate import evaluate as evaluate
    from tracrl.methods.bc import BCAll as BCAll
    from tracrl.methods.bc import BCSafe as BCSafe
    from tracrl.methods.bcq_lag import BCQLag as BCQLag
    from tracrl.methods.bear_lag import BEARLag as BEARLag
    from tracrl.methods.caps import CAPS as CAPS
    from tracrl.methods.carl import CARL as CARL
    from tracrl.methods.cdt import CDT as CDT
    from tracrl.methods.coptidice import COptiDICE as COptiDICE
    from tracrl.methods.cpq import CPQ as CPQ
    from tracrl.methods.trac import TraC as TraC
    from tracrl.methods.trac_any import TraCAny as TraCAny
    from tracrl.ope.estimate import estimate as estimate
    from tracrl.ope.estimates import Estimates as Estimates
    from tracrl.ope.gate import choose as choose
    from tracrl.ope.gate import gate as gate
    from tracrl.policies.load import load_policy as load_policy
    from tracrl.train.fit import fit as fit

__version__ = "0.17.0"

# Name -> module. Imported on first use, so that neither torch nor a simulator loads before it is needed:
# listing tasks stays instant, and the worker processes of an evaluation stay small.
_HOMES = {
    "Episodes": "tracrl.data.episodes",
    "import_episodes": "tracrl.data.sources",
    "load_dataset": "tracrl.data.locate",
    "TracrlError": "tracrl.errors",
    "evaluate": "tracrl.evaluation.evaluate",
    "BCAll": "tracrl.methods.bc",
    "BCSafe": "tracrl.methods.bc",
    "BCQLag": "tracrl.methods.bcq_lag",
    "BEARLag": "tracrl.methods.bear_lag",
    "CAPS": "tracrl.methods.caps",
    "CARL": "tracrl.methods.carl",
    "CDT": "tracrl.methods.cdt",
    "COptiDICE": "tracrl.methods.coptidice",
    "CPQ": "tracrl.methods.cpq",
    "TraC": "tracrl.methods.trac",
    "TraCAny": "tracrl.methods.trac_any",
    "Estimates": "tracrl.ope.estimates",
    "choose": "tracrl.ope.gate",
    "estimate": "tracrl.ope.estimate",
    "export": "tracrl.deploy.export",
    "gate": "tracrl.ope.gate",
    "load_policy": "tracrl.policies.load",
    "make_env": "tracrl.envs.make",
    "make_vec_env": "tracrl.envs.make",
    "fit": "tracrl.train.fit",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tracrl' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
