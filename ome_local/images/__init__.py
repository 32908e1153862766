"""Build the container images of images/ with buildah, without Docker."""
