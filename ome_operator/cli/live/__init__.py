"""Reads facts for the commands from files or from a live cluster. The pure packages (core, describe, lint) interpret
them.
"""
