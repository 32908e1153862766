"""Select the runtime and the accelerator classes of a service."""
