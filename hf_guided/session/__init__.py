"""Rows, masks, lookahead, log probabilities, reasoning and results of one call."""
