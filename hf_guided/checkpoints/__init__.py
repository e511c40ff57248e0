"""Where a model comes from, and how it is loaded: what the command lines and the server share."""
