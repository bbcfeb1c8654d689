"""Reports as HTML pages with drawings."""
