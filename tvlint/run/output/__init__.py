"""Where reports go, in which formats, and the exit code."""
