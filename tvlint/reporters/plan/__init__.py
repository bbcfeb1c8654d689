"""Write plans as plan text and plan JSON."""
