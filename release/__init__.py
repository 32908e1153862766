"""Build and push releases: `make release` and `make charts`. No image and no wheel contains this package."""
