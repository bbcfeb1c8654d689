"""`python -m tvlint` is `tvlint`: as there, nothing is imported from the current folder, which Python put first."""

import os
import sys

try:
    current = os.getcwd()
except FileNotFoundError:  # the folder is gone, so that nothing can be imported from it
    current = ""
sys.path[:] = [folder for folder in sys.path if folder not in ("", current)]

from tvlint.cli import main  # noqa: E402

sys.exit(main())
