"""Read launches and YAML of Megatron and its kin."""
