"""Captures of training programs, read and lifted into plans (`docs/capture.md`)."""
