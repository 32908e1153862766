"""Spans of engines and routers: where they are sent, and what the pods need for that (docs/traces.md)."""
