"""What the status of a service says: conditions with a reason and a sentence that a person can act on."""
