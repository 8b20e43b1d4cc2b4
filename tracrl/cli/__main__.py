"""``python -m tracrl.cli`` is the command ``tracrl``."""

import sys

from tracrl.cli import main

if __name__ == "__main__":
    sys.exit(main())
