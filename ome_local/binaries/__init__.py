"""The programs of a cluster. They are downloaded and verified by a digest in this repository, or built from source."""
