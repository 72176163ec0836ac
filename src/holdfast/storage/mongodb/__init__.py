"""Storage in a MongoDB database."""
