"""Methods by their names: those that are built in, those that installed packages announce, and anyone's own.

Code runs only when a person names it. ``my_file:BCTop`` on a command line imports ``my_file``; the same words in a
file are text. What tables and figures need to know of a run's method is in the run's own ``config.json``.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tracrl import own_code
from tracrl.errors import TracrlError
from tracrl.methods.bc import BCAll, BCSafe
from tracrl.methods.bcq_lag import BCQLag
from tracrl.methods.bear_lag import BEARLag
from tracrl.methods.caps import CAPS
from tracrl.methods.carl import CARL
from tracrl.methods.cdt import CDT
from tracrl.methods.coptidice import COptiDICE
from tracrl.methods.cpq import CPQ
from tracrl.methods.method import Method
from tracrl.methods.trac import TraC
from tracrl.methods.trac_any import TraCAny

METHODS: dict[str, type[Method]] = {
    method.name: method for method in (TraC, BCAll, BCSafe, CDT, BCQLag, BEARLag, CPQ, COptiDICE, CAPS, CARL, TraCAny)
}
ENTRY_POINTS = "tracrl.methods"
"""the group under which a package announces its methods: ``name = "package.module:Class"``"""
_own: dict[str, tuple[type[Method], str]] = {}
"""methods from outside that this process was told to import, by name, and how they were named"""


def get_method(name: str) -> type[Method]:
    """The method that someone asks for by name, or by ``module:Class`` or ``file.py:Class``, which is imported.

    Only for what a person typed: a name that was read from a file goes to :func:`known_method`.
    """
    if (known := known_method(name)) is not None:
        return known
    announced = {entry.name: entry.value for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    if ":" in name or name in announced:
        found, where = own_code.find(announced.get(name, name), "my_file:BCTop")
        method = _checked(found, name)
        _own[method.name] = method, where
        return method
    names = [*METHODS, *_own, *announced]
    near = difflib.get_close_matches(name.lower().replace("_", "-"), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}, or module:Class for one of your own."
    raise TracrlError(f"There is no method called {name!r}: {hint}")


def known_method(name: str) -> type[Method] | None:
    """The method called ``name`` if it is built in, or if this process was told to import it. Imports nothing."""
    if name in METHODS:
        return METHODS[name]
    return _own[name][0] if name in _own else None


def how_to_import(method: type[Method]) -> str | None:
    """What another process gives to :func:`get_method` for a method from outside, from whatever directory."""
    return next((where for known, where in _own.values() if known is method), None)


@dataclass(frozen=True)
class MethodMetadata:
    """What tables and figures need to know of a run's method."""

    title: str
    depends_on_limit: bool
    phase_ends: tuple[int, ...]


def metadata_to_store(method: Method) -> dict[str, Any]:
    """The part of a run's config.json that spares its readers the method itself."""
    metadata = MethodMetadata(method.title, method.depends_on_limit, method.phase_ends)
    stored: dict[str, Any] = json.loads(json.dumps(asdict(metadata)))
    return stored


def metadata_of(config: Mapping[str, Any]) -> MethodMetadata:
    """Of a run's config.json, without importing anything that it names."""
    stored, name = config.get("method_metadata"), str(config.get("method"))
    if isinstance(stored, Mapping):
        ends = stored.get("phase_ends", ())
        return MethodMetadata(
            str(stored.get("title", name)),
            bool(stored.get("depends_on_limit", True)),
            tuple(end for end in ends if isinstance(end, int)) if isinstance(ends, list | tuple) else (),
        )
    kind = known_method(name)  # version 0.4 stored no metadata
    if kind is None:
        return MethodMetadata(name, True, ())
    try:
        ends = kind(**current_settings(kind, config.get("settings", {}))).phase_ends
    except (TracrlError, TypeError):  # edited; whoever needs the settings themselves will say so
        ends = ()
    return MethodMetadata(kind.title, kind.depends_on_limit, ends)


def current_settings(method: type[Method] | None, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Settings from a file under the names that they have today; those of an unknown method stay as they are."""
    renamed = {} if method is None else method.renamed
    return {renamed.get(name, name): value for name, value in stored.items()}


def original_settings(method: type[Method] | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under the names that they had first."""
    first = {} if method is None else {new: old for old, new in method.renamed.items()}
    return {first.get(name, name): value for name, value in settings.items()}


def _checked(found: Any, name: str) -> type[Method]:
    """A class that can be trained, stored and told apart from the others; or what is missing, in a sentence."""
    if not (inspect.isclass(found) and issubclass(found, Method)):
        raise TracrlError(f"{name} is no method: expected a subclass of tracrl.methods.method.Method.")
    if inspect.isabstract(found):
        raise TracrlError(f"{name} lacks {', '.join(sorted(found.__abstractmethods__))}.")
    if "__dataclass_fields__" not in vars(found):
        raise TracrlError(f"{name} is no dataclass: write @dataclass(frozen=True) above it.")
    for attribute in ("name", "title"):
        if not isinstance(getattr(found, attribute, None), str):
            raise TracrlError(f'{name} has no {attribute}: write {attribute}: ClassVar[str] = "..." in it.')
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,63}", found.name):
        raise TracrlError(
            f"{name} is called {found.name!r}: expected up to 64 letters, digits, dots, dashes and underscores, since "
            "directories are named after it."
        )
    if found.name in METHODS:
        raise TracrlError(f"{name} is called {found.name!r} like {METHODS[found.name].title}: choose another name.")
    return found
