"""Small helpers without a word of this domain."""
