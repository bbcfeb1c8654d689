"""The content of captures: windows on storages and events in order, inert and bounded."""
