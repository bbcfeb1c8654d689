"""`python -m tvlint` is `tvlint`: as there, nothing is imported from the current folder, which Python put first."""

import os
import sys

sys.path[:] = [folder for folder in sys.path if folder not in ("", os.getcwd())]

from tvlint.cli import main  # noqa: E402

sys.exit(main())
