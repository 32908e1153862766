"""What exists and what is wanted go in, a Plan comes out. Pure: no clock, no chance, no network. `sync` is the entrance."""
