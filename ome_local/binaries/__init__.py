"""The programs of a cluster: downloaded and verified by a digest in this repository, or built from source."""
