"""What is known of engines and routers, as data: a new engine is a new file."""
