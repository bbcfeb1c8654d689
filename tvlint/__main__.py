"""`python -m tvlint` is `tvlint`."""

import sys

from tvlint.cli import main

sys.exit(main())
