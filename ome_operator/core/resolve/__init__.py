"""From what people wrote to what a service is made of: merge runtime and service, find what they name, refuse nonsense."""
