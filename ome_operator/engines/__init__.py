"""Facts about engines and routers, stored as data. To support a new engine, add a file with its data."""
