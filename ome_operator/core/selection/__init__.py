"""Which runtime and which accelerator class a service gets, and why not another."""
