"""Derive Megatron's batch schedule, layer pattern and pipeline layout from options."""
