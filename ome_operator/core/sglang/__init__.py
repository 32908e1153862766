"""The short kinds of sglang.ai: what they become, and what their status says."""
