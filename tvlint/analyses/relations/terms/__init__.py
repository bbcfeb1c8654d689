"""Hash-consed logical terms and their normal forms."""
