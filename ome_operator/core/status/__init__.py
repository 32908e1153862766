"""What the status of each kind says: conditions with a reason and a sentence that a person can act on."""
