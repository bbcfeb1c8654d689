"""Search the nearest settings that satisfy every rule."""
