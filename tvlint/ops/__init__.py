"""What an operator means, said once."""
