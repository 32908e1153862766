"""The only imports of kopf: it lists and watches, and tells a sink what it saw. No handler of ours writes anything."""
