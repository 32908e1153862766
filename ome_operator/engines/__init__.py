"""Facts about engines and routers, as data: a new engine needs a new file only."""
