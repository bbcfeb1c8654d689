"""Python programs that build and start commands: statements followed, and expressions evaluated, never run."""
