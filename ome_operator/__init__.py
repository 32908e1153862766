"""Model-driven serving of large mixture-of-experts models on Kubernetes."""

__version__ = "0.1.0"
