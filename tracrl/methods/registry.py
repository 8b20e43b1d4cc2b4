"""Every method by its name on the command line."""

from __future__ import annotations

import difflib

from tracrl.errors import TracrlError
from tracrl.methods.bc import BCAll, BCSafe
from tracrl.methods.bcq_lag import BCQLag
from tracrl.methods.bear_lag import BEARLag
from tracrl.methods.cdt import CDT
from tracrl.methods.coptidice import COptiDICE
from tracrl.methods.cpq import CPQ
from tracrl.methods.method import Method
from tracrl.methods.trac import TraC

METHODS: dict[str, type[Method]] = {
    method.name: method for method in (TraC, BCAll, BCSafe, CDT, BCQLag, BEARLag, CPQ, COptiDICE)
}


def get_method(name: str) -> type[Method]:
    """The method called ``name``; an unknown name is answered with the nearest known one."""
    if name in METHODS:
        return METHODS[name]
    as_typed = name.lower().replace("_", "-")
    near = difflib.get_close_matches(as_typed, METHODS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(METHODS)}."
    raise TracrlError(f"There is no method called {name!r}: {hint}")
