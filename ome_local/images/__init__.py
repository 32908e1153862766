"""Container images built from images/ without Docker."""
