"""What a release is made of, and how it is pushed: `make release` and `make charts`. No image and no wheel has this."""
