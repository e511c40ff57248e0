"""Where a model comes from, and how it is loaded: shared by the command lines and the server."""
