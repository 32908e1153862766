"""Extract facts from a model's own files: architecture, parameters, experts, attention, quantization, context. No I/O."""
