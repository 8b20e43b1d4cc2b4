"""The settings of a method as options of ``tracrl train``: generated from its dataclass, ranges in the help."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import tyro

from tracrl.errors import TracrlError
from tracrl.settings import expectation, kinds_of, option_of

if TYPE_CHECKING:
    from tracrl.methods.method import Method

Options = TypeVar("Options")
_HELP = ("-h", "--help")


def parse_training(
    kind: type[Method], options: type[Options], arguments: Sequence[str]
) -> tuple[Options, dict[str, Any]]:
    """The command's own options, and the method's settings that were given.

    Nothing is judged here: whether settings fit depends on the task's suite, which the data may have to tell.
    """
    words = [word.partition("=")[0] for word in arguments if word.startswith("--")]
    names = [word[2:].replace("-", "_") for word in words]
    for name in names:
        if name in kind.renamed:
            raise TracrlError(f"{kind.title}: {option_of(name)} is called {option_of(kind.renamed[name])} now.")
    without_help = [word for word in arguments if word not in _HELP]
    parsed = _parse(kind, options, kind.preset(), without_help)
    if len(without_help) < len(arguments):
        _parse(kind, options, kind.preset(_suite(parsed.run.task), parsed.run.preset), arguments)  # prints and exits
    given = {f.name for f in dataclasses.fields(kind)} & set(names)
    return parsed.run, {name: getattr(parsed.settings, name) for name in names if name in given}


def _parse(kind: type[Method], options: type[Options], defaults: Method, arguments: Sequence[str]) -> Any:
    docs = _field_docs(kind)
    settings = dataclasses.make_dataclass(
        "Settings",
        [(name, _option(hint, docs.get(name, "")), getattr(defaults, name)) for name, hint in kinds_of(kind).items()],
    )
    settings.__doc__ = kind.__doc__
    training = dataclasses.make_dataclass("Training", [("run", options), ("settings", settings)])
    training.__doc__ = f"{options.__doc__}\n\n{kind.__doc__}"
    return tyro.cli(
        tyro.conf.OmitArgPrefixes[training],  # type: ignore[misc, valid-type]
        prog=f"tracrl train {kind.name}",
        args=list(arguments),
        default=training(options(), settings()),
    )


def _option(hint: Any, doc: str) -> Any:
    """The type of a setting without its range, which goes into the help."""
    if typing.get_origin(hint) is not Annotated:
        return Annotated[hint, tyro.conf.arg(help=doc)]
    return Annotated[typing.get_args(hint)[0], tyro.conf.arg(help=f"{doc}; {expectation(hint)}")]


def _field_docs(kind: type) -> dict[str, str]:
    """The string below each field of a class and those that it inherits from."""
    docs: dict[str, str] = {}
    for cls in reversed(kind.__mro__):
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        except (OSError, TypeError, SyntaxError, ValueError):  # no source at hand
            continue
        body = getattr(tree, "body", [])
        for field, below in itertools.pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                docs[field.target.id] = " ".join(str(below.value.value).split())
    return docs


def _suite(task: str | None) -> str:
    from tracrl.tasks.table import get_task

    return "Bullet" if task is None else get_task(task).suite
