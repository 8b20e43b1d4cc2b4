"""The one kind of error that a user is meant to read."""

from __future__ import annotations


class TracrlError(Exception):
    """Something the user can mend: one sentence saying what, where, what was expected and what to do.

    The command line prints it without a traceback and exits with ``exit_code``.
    """

    exit_code = 1
