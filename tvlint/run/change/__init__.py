"""What a change of files brings: settings, groups and findings."""
