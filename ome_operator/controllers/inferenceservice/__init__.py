"""The reconciler of InferenceServices and what it remembers between passes."""
