"""Rule pages, the language they are written in, and what they say of a configuration."""
