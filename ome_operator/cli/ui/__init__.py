"""`ome ui`: how services stand, as a page on the machine of whoever asks. It reads, and writes nothing anywhere."""
