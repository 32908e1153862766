"""What exists and what is wanted, in; a Plan, out. Pure: no clock, no chance, no network."""
