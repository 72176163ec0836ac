"""An agent set up by one document, and all that runs beside it."""
