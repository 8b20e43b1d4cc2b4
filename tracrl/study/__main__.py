"""``python -m tracrl.study study ...`` and ``... report ...``: the two commands as modules."""

from __future__ import annotations

import sys

from tracrl.cli import COMMANDS, main
from tracrl.study.command import ReportOptions, StudyOptions, report, study

if __name__ == "__main__":
    COMMANDS.setdefault(("study",), (study, StudyOptions))
    COMMANDS.setdefault(("report",), (report, ReportOptions))
    sys.exit(main(sys.argv[1:]))
