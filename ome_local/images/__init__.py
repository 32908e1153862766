"""Container images: the Dockerfiles of images/ run by buildah, without Docker."""
