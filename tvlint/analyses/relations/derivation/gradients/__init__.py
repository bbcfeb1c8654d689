"""Where gradients start, what they are paired with, and what becomes of them over the step."""
