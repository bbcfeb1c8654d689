"""What torch runs, written as the operators and collectives that it stands for."""
