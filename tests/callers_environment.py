"""What tvlint, rich, argparse and git do by the environment: the names that no test gets from its caller."""

from __future__ import annotations

NAMES = frozenset(
    {
        "CI", "NO_COLOR", "FORCE_COLOR", "FORCE_HYPERLINK", "CLICOLOR", "CLICOLOR_FORCE", "COLORTERM", "PYTHON_COLORS", "TERM",
        "COLUMNS", "LINES",
        "TTY_COMPATIBLE", "TTY_INTERACTIVE", "TVLINT_DEBUG", "XDG_STATE_HOME", "LOCALAPPDATA", "GIT_DIR", "GIT_INDEX_FILE",
        "GIT_WORK_TREE", "CUDA_DEVICE_MAX_CONNECTIONS",
    }
)  # fmt: skip
PREFIXES = ("GITHUB_", "GITLAB_", "CI_", "RUNNER_")


def is_the_callers(name: str) -> bool:
    """Return whether a variable says something of whoever runs the tests."""
    return name in NAMES or name.startswith(PREFIXES)
