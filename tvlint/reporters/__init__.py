"""Report to text, one file a format."""
