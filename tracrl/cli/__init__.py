"""The command line: no logic of its own."""

from tracrl.cli.main import main as main
