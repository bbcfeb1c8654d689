"""Read DeepSpeed configurations."""
