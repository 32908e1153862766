"""The short kinds of sglang.ai: the objects that are created for them, and their statuses."""
