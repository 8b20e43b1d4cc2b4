"""All cases."""

from __future__ import annotations

from functools import cache

from tests.corpus import collecting, commands, data_files, names, options, policies, runs, servers, signals
from tests.corpus.case import Case

QUICK = ("data", "settings", "options", "commands", "policies", "names", "collect")
GROUPS = (data_files, options, commands, policies, runs, names, servers, signals, collecting)


@cache
def all_cases() -> tuple[Case, ...]:
    found = tuple(case for group in GROUPS for case in group.cases())
    names = [(case.group, case.name) for case in found]
    assert len(set(names)) == len(names), [name for name in names if names.count(name) > 1]
    return found


def sample(size: int = 40) -> tuple[Case, ...]:
    """Some of the quick ones, spread evenly over the table and always the same."""
    quick = [
        case
        for case in all_cases()
        if case.group in QUICK
        and not case.own_process
        and case.expected != "works"
        and set(case.takes) <= {"own.hdf5"}  # the other materials take seconds to make
    ]
    return tuple(quick[i * len(quick) // size] for i in range(size))
