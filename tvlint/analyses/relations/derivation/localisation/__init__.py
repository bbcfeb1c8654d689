"""What is wrong, for certain or not, and at which operator a reader should look."""
