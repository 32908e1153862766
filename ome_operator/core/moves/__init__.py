"""Moves: a group leaves a node that will go away, after another group has taken its place (docs/moves.md)."""
