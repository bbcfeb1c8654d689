"""Operators that the table annotates and does not interpret: what projects declare and authors register."""
