"""Remembering results between runs: an entry counts only when it is signed with a key that lies outside the repository."""
