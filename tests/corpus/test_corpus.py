"""The corpus: all of it in the slow tests, a sample of each group in the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.corpus.case import Bench, Case
from tests.corpus.table import all_cases, sample


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("corpus")
    for above in (folder, *folder.parents[:2]):  # some cases run as another user
        above.chmod(above.stat().st_mode | 0o055)
    with Bench(folder / "base") as made:
        yield made


def _marked() -> Iterator[object]:
    sampled = set(map(id, sample()))
    for case in all_cases():
        marks = () if id(case) in sampled else (pytest.mark.slow,)
        yield pytest.param(case, id=f"{case.group}: {case.name}"[:120], marks=marks)


@pytest.mark.parametrize("case", list(_marked()))
def test_it_is_answered_with_a_sentence(bench: Bench, case: Case) -> None:
    outcome = bench.tried(case)
    assert not outcome.problems, outcome.said


def test_the_corpus_is_large() -> None:
    assert len(all_cases()) >= 300
