"""`ome ui`: shows services as a web page on the user's own machine. It only reads."""
