"""What runs beside one call: rows, masks, lookahead, log probabilities, reasoning, results."""
