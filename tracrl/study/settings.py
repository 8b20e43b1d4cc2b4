"""Settings of methods that a study changes: ``--set updates=500``, and those that were written to a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from tracrl.errors import TracrlError
from tracrl.methods.method import Method
from tracrl.methods.registry import get_method
from tracrl.settings import checked, kinds_of


def changed(method: Method, changes: Mapping[str, Any]) -> Method:
    """The method with other settings, each checked by its type and range; lists of JSON are our tuples."""
    kinds = kinds_of(type(method))
    for name in changes:
        if name not in kinds:
            raise TracrlError(f"{method.title} has no setting called {name!r}.")
    return replace(method, **{n: checked(f"{method.name}.{n}", v, kinds[n]) for n, v in changes.items()})


def parse_settings(given: Iterable[str], kinds: Sequence[type[Method]]) -> dict[str, dict[str, Any]]:
    """``name=value`` for every method that has the setting, ``method.name=value`` for one; by method."""
    result: dict[str, dict[str, Any]] = {}
    for words in given:
        left, equals, text = words.partition("=")
        if not equals or not left:
            raise TracrlError(f"--set {words!r}: expected name=value or method.name=value, such as updates=500.")
        owner, _, name = left.rpartition(".")
        name = name.replace("-", "_")
        for kind in kinds:
            if name in kind.renamed and owner in ("", kind.name):
                raise TracrlError(f"--set {words!r}: {kind.title}'s {name} is called {kind.renamed[name]} now.")
        if owner and get_method(owner) not in kinds:
            raise TracrlError(f"--set {words!r}: {get_method(owner).title} is not part of this study.")
        having = [k for k in kinds if name in {f.name for f in fields(k)} and owner in ("", k.name)]
        if not having:
            who = get_method(owner).title if owner else "None of the methods of this study"
            raise TracrlError(f"--set {words!r}: {who} has {'no' if owner else 'a'} setting called {name!r}.")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        for kind in having:
            result.setdefault(kind.name, {})[name] = value
    return result
