"""Text is shown as it is, wherever it is shown."""

from __future__ import annotations

import io

import pytest
from rich.table import Table

from tracrl.cli.console import PlainConsole, fail, nearest, shown


def printed(what: object, encoding: str, monkeypatch: pytest.MonkeyPatch) -> str:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding=encoding, errors="strict", write_through=True))
    PlainConsole().print(what)
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("text", ["[bold]x[/bold]", "[/]", "[link=a]", "$x^", ":smile:", "\\[red]"])
def test_text_is_never_markup(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed(text, "utf-8", monkeypatch) == f"{text}\n"
    table = Table(title=text)
    table.add_column(text)
    table.add_row(text)
    assert printed(table, "utf-8", monkeypatch).count(text) == 3


def test_characters_that_are_missing_are_replaced_by_near_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed("3 × 2 ± 1 − η² … é 中", "ascii", monkeypatch) == "3 x 2 +- 1 - eta2 ... e \\u4e2d\n"
    assert printed("3 × 2 ± 1 η", "latin-1", monkeypatch) == "3 × 2 ± 1 eta\n"


def test_tables_stay_aligned_in_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table("a")
    for row in ("1.0 ± 0.1", "10.00 of 1"):
        table.add_row(row)
    lines = printed(table, "ascii", monkeypatch).splitlines()
    assert len({len(line) for line in lines}) == 1


def test_bytes_that_are_no_text_and_control_characters_are_numbers() -> None:
    assert shown(b"a\xff\xfe.hdf5".decode("utf-8", "surrogateescape")) == "a\\xff\\xfe.hdf5"
    assert shown("a\x1b[2Jb\r") == "a\\x1b[2Jb\\x0d"
    assert nearest("╭") == "+"


def test_a_sentence_is_one_line_of_reasonable_length(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail(f"There is no\nfile at {'x' * 5000}.", 3) == 3
    said = capsys.readouterr().err
    assert said.startswith("tracrl: There is no file at xxx")
    assert said.count("\n") == 1
    assert len(said) < 400
