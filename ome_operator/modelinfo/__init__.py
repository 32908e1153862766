"""From a model's own files to facts: architecture, parameters, experts, attention, quantization, context. No I/O."""
