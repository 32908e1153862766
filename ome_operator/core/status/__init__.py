"""Build the status of a service: conditions with a reason and a message that states what to do."""
