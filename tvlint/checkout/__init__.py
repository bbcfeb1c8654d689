"""The checkout that a run works in: where it starts, what git tracks in it, and which of its files may be opened.

Everything that a commit holds may come from a stranger, who also chooses what its files name: so a file of the commit leads to
files of the commit only, and git is asked for facts and runs no program that a file or a configuration names.
"""
