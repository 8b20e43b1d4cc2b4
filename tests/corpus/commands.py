"""Commands that are none, global options, and what is wrong with how they are typed."""

from __future__ import annotations

from collections.abc import Iterator

from tests.corpus.case import Case, Expected


def cases() -> Iterator[Case]:
    rows: list[tuple[str, Expected, str]] = [
        ("", "usage", "usage: tracrl COMMAND"),
        ("--help", "works", "usage: tracrl COMMAND"),
        ("-h", "works", "usage: tracrl COMMAND"),
        ("help", "works", "usage: tracrl COMMAND"),
        ("--version", "works", r"^tracrl \d+\.\d+"),
        ("foo", "usage", "There is no command called 'foo': tracrl --help"),
        ("trian trac BallRun", "usage", "did you mean tracrl train"),
        ("Train trac BallRun", "usage", "did you mean tracrl train"),
        ("eval run", "usage", "did you mean tracrl evaluate"),
        ("data", "usage", "tracrl data import, tracrl data inspect, tracrl data check"),
        ("data --help", "usage", "tracrl data inspect"),
        ("data insepct x", "usage", "did you mean tracrl data inspect"),
        ("check x.hdf5", "usage", "did you mean tracrl data check"),
        ("--verison", "usage", "There is no option called '--verison'"),
        ("--out x train", "usage", "There is no option called '--out'"),
        ("'[bold]x[/'", "usage", r"'\[bold\]x\[/'"),
        ("'$x^2'", "usage", r"\$x\^2"),
        ("'a b'", "usage", "'a b'"),
        ("-- train", "usage", "no option called '--'"),
        ("train --version", "refused", "There is no method called"),
        ("tasks --debug --help", "works", "List the 38 tasks"),
        ("evaluate ''", "refused", "empty"),
        ("train trac BallRun --out ''", "refused", "--out has an empty value"),
        ("train trac BallRun --out=", "refused", "--out has an empty value"),
        ("train '' BallRun", "refused", "empty"),
        ("data inspect BallRun --out ''", "refused", "--out has an empty value"),
        ("report runs --out ''", "refused", "--out has an empty value"),
        ("collect BallRun --out ''", "refused", "--out has an empty value"),
        ("study main --out ''", "refused", "--out has an empty value"),
        ("data fetch BallRun --out ''", "refused", "--out has an empty value"),
        *(
            (f"{command} --help", "works", "(?i)usage|options")
            for command in (
                "tasks", "sims", "methods", "data inspect", "data check", "data fetch", "train bc-all", "evaluate",
                "collect", "study", "report",
            )
        ),
    ]  # fmt: skip
    for words, expected, says in rows:
        yield Case("commands", words or "no words", words, expected, says)
    yield Case("commands", "a word of 100 kB", ["x" * 100_000], "usage", "There is no command")
    yield Case("commands", "a thousand words", ["data", "check", *["x"] * 1000], "usage", "")
    yield Case("commands", "bytes that are no text", [b"\xff\xfe"], "usage", "There is no command called")
    yield Case("commands", "an escape", ["\x1b[2J"], "usage", r"x1b")
    yield Case("commands", "a line end", ["a\nb"], "usage", "There is no command")
