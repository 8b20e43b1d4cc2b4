"""What a setting may be: the one place that checks a value by its type, its choices and its range.

A range is part of a setting's type, ``gamma: Annotated[float, Range(0, 1, above=True)]``, so that Python, the command
line, ``--set`` and files are held to the same one, and ``--help`` can show it.
"""

from __future__ import annotations

import math
import numbers
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from tracrl.errors import TracrlError


@dataclass(frozen=True)
class Range:
    """The numbers that a setting takes, or each number of a tuple."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    """``low`` itself is left out"""
    below: bool = False
    """``high`` itself is left out"""
    kind: str = ""
    """what the number is, in a word or two: "a discount" """

    def __contains__(self, value: float) -> bool:
        over = value > self.low if self.above else value >= self.low
        return over and (value < self.high if self.below else value <= self.high)

    def __str__(self) -> str:
        low = f"above {_number(self.low)}" if self.above else f"from {_number(self.low)}"
        high = f"below {_number(self.high)}" if self.below else f"up to {_number(self.high)}"
        if self.high == math.inf:
            return "" if self.low == -math.inf else low if self.above else f"of at least {_number(self.low)}"
        if self.low == -math.inf:
            return high
        if self.above:
            return f"{low} and {high}"
        return f"{low} to below {_number(self.high)}" if self.below else f"{low} to {_number(self.high)}"


@dataclass(frozen=True)
class Count:
    """How many values a tuple holds."""

    low: int
    high: int


Updates = Annotated[int, Range(1, 10**9)]
BatchSize = Annotated[int, Range(1, 10**6)]
LearningRate = Annotated[float, Range(0, 1)]
Discount = Annotated[float, Range(0, 1, above=True, below=True, kind="a discount")]
Share = Annotated[float, Range(0, 1, kind="a share")]
Weight = Annotated[float, Range(0, 10**6)]
Positive = Annotated[float, Range(0, 10**6, above=True)]
Dropout = Annotated[float, Range(0, 0.99, kind="a rate")]
Hidden = Annotated[tuple[int, ...], Range(1, 16_384), Count(1, 16)]
Episodes = Annotated[int, Range(1, 10**6)]
Evaluations = Annotated[int, Range(1, 10**5)]
Seed = Annotated[int, Range(0, 2**63 - 1)]
Limit = Annotated[float, Range(0, 10**12)]


def checked(option: str, value: Any, kind: Any) -> Any:
    """``value`` as what ``kind`` (a type, perhaps with a range) says, or a sentence that names the ``option``."""
    try:
        return _converted(value, kind)
    except (TypeError, ValueError):
        shown = repr(value)
        shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
        raise TracrlError(f"{option} is {shown}; expected {expectation(kind)}.") from None


def check_settings(settings: Any, title: str) -> None:
    """Every field of a (frozen) dataclass by its type. What means the same is made the same: 1 is 1.0 for a float."""
    for name, kind in kinds_of(type(settings)).items():
        value = checked(f"{title}: {option_of(name)}", getattr(settings, name), kind)
        object.__setattr__(settings, name, value)


def kinds_of(settings: type[Any]) -> Mapping[str, Any]:
    """The types of a dataclass's fields, ranges included."""
    hints = typing.get_type_hints(settings, include_extras=True)
    return {f.name: hints[f.name] for f in fields(settings)}


def option_of(name: str) -> str:
    """A setting as an option of the command line."""
    return "--" + name.replace("_", "-")


def expectation(kind: Any) -> str:
    """What a setting takes, in words: "a number above 0 and up to 1"."""
    base, allowed, count = _taken_apart(kind)
    origin = typing.get_origin(base)
    if origin is Literal:
        return " or ".join(map(str, typing.get_args(base)))
    if _is_union(base):
        return " or ".join(expectation(member) for member in typing.get_args(base))
    if origin is tuple:
        element = typing.get_args(base)[0]
        each = expectation(Annotated[element, allowed] if allowed else element)
        many = "a list such as [256, 256]" if count is None else f"{count.low} to {count.high} values"
        return f"{many}, each {each}"
    if base in (int, float):
        named = allowed.kind if allowed and allowed.kind else _KINDS[base]
        return f"{named} {allowed}".rstrip() if allowed else "a finite number" if base is float else named
    return _KINDS.get(base, str(base))


def check_limits(limits: Sequence[float], option: str = "--limits") -> tuple[float, ...]:
    """Cost limits: at least one, none twice, and all told apart where they are printed."""
    if not limits:
        raise TracrlError(f"At least one limit is needed: for example {option} 10 20 40.")
    if any(not _is_number(limit) or not 0 <= limit < math.inf for limit in limits):
        raise TracrlError(f"{option} must be numbers of 0 or more: they are bounds on an episode's cost.")
    result = tuple(checked(option, limit, Limit) for limit in limits)
    printed = [f"{limit:g}" for limit in result]
    if len(set(result)) != len(result):
        raise TracrlError(f"{option} names a value twice: {' '.join(printed)}.")
    if len(set(printed)) != len(printed):
        raise TracrlError(
            f"{option} holds values that differ by less than the six digits that logs and tables print "
            f"({' '.join(map(repr, result))}): choose limits that are further apart."
        )
    return result


def check_seeds(seeds: Sequence[int], option: str = "--seeds") -> tuple[int, ...]:
    """Seeds: at least one, none twice."""
    if not seeds:
        raise TracrlError(f"At least one seed is needed: for example {option} 0.")
    result = tuple(checked(option, seed, Seed) for seed in seeds)
    if len(set(result)) != len(result):
        raise TracrlError(f"{option} names a value twice: {' '.join(map(str, result))}.")
    return result


_KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a word",
    bool: "true or false",
    types.NoneType: "nothing",
}


def _converted(value: Any, kind: Any) -> Any:
    base, allowed, count = _taken_apart(kind)
    origin = typing.get_origin(base)
    if _is_union(base):
        for member in typing.get_args(base):
            try:
                return _converted(value, member)
            except (TypeError, ValueError):
                continue
        raise ValueError
    if origin is Literal:
        if value in typing.get_args(base):
            return value
        raise ValueError
    if origin is tuple:
        if not isinstance(value, list | tuple) or (count and not count.low <= len(value) <= count.high):
            raise ValueError
        element = typing.get_args(base)[0]
        return tuple(_converted(item, Annotated[element, allowed] if allowed else element) for item in value)
    if base in (int, float):
        if not _is_number(value, whole=base is int) or (allowed and value not in allowed):
            raise ValueError
        if not abs(value) <= 1.7e308:  # neither NaN nor infinite, nor a whole number that no float holds
            raise ValueError
        return base(value)
    if base in (str, bool, types.NoneType) and not isinstance(value, base):
        raise ValueError
    return value


def _is_number(value: Any, whole: bool = False) -> bool:
    """Also one of NumPy's; true and false are none."""
    return isinstance(value, numbers.Integral if whole else numbers.Real) and not isinstance(value, bool)


def _taken_apart(kind: Any) -> tuple[Any, Range | None, Count | None]:
    if typing.get_origin(kind) is not Annotated:
        return kind, None, None
    base, *more = typing.get_args(kind)
    allowed = next((m for m in more if isinstance(m, Range)), None)
    return base, allowed, next((m for m in more if isinstance(m, Count)), None)


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


def _number(value: float) -> str:
    """Large whole numbers in groups of three digits, powers where they are larger still."""
    if abs(value) < 1e13 and value == int(value):
        return f"{int(value):,}".replace(",", " ")
    return "2**63 - 1" if value == 2**63 - 1 else f"{value:g}"
