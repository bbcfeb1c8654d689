"""Read Python recipes of NeMo and Megatron-Bridge without running them."""
