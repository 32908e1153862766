"""Spans (OpenTelemetry traces) of engines and routers: the collector to which they are sent, and the configuration of the
pods (docs/traces.md).
"""
