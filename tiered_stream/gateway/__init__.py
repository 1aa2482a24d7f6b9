"""Gateway that adds KIP-1248 to stock brokers: it passes on readers' requests and returns locations of segments."""
