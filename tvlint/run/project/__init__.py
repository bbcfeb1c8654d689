"""Which files a run is about, and the settings that judge each."""
