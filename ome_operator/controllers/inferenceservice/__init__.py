"""The reconciler of InferenceServices and the facts that it keeps between reconciliations."""
