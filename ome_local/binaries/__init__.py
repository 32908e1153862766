"""The programs that a cluster is made of: fetched with a digest that is written down, or built from source."""
