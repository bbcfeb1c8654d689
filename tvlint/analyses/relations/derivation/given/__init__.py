"""What a plan declares and a derivation starts from."""
