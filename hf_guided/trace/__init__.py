"""What a person looks at: a generation, token by token, as one page."""
