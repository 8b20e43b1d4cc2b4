"""``python -m tests.corpus [GROUP or part of a name ...] [-v]``: try cases, list the failures, count."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.corpus.case import Bench
from tests.corpus.table import all_cases


def main(words: list[str]) -> int:
    loud = "-v" in words
    wanted = [word for word in words if word != "-v"]
    groups = {case.group for case in all_cases()}
    chosen = [
        case
        for case in all_cases()
        if not wanted or any(w == case.group if w in groups else w in f"{case.group}: {case.name}" for w in wanted)
    ]
    tried: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    folder = Path(tempfile.mkdtemp(prefix="corpus-"))
    folder.chmod(0o755)  # some cases run as another user
    with Bench(folder) as bench:
        for case in chosen:
            outcome = bench.tried(case)
            tried[case.group] += 1
            passed[case.group] += not outcome.problems
            if outcome.problems or loud:
                print(f"{'FAILS' if outcome.problems else 'ok'} {case.group}: {case.name} ({outcome.took:.1f} s)")
                for problem in outcome.problems:
                    print(f"    {problem}")
                said = outcome.said.strip().splitlines()
                for line in said if loud and wanted else said[-2:]:
                    print(f"    | {line[:300]}")
                sys.stdout.flush()
    for group, number in tried.items():
        print(f"{group:<12}{passed[group]:>5} of {number}")
    print(f"{'all':<12}{passed.total():>5} of {tried.total()}")
    return int(passed.total() < tried.total())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
