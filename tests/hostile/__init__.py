"""A checkout that a stranger filled: tvlint runs nothing of it, shows only what is in it, and writes where it was told."""
