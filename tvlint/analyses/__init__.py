"""Plan to facts that several checks share."""
