"""Builds and pushes releases: `make release` and `make charts`. The package is in no image and no wheel."""
