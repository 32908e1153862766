"""Freeze and observe mode: who holds a service, and what of a plan is carried out meanwhile (docs/observe-freeze.md)."""
