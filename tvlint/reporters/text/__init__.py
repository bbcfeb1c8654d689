"""Reports for terminals."""
