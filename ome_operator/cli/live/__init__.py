"""What the commands ask: facts from files or a live cluster. The pure side says what they mean."""
