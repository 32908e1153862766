"""The programs that a cluster is made of: fetched and verified, or built from source."""
