"""Plan rules by topic, beside the topics of their pages."""
