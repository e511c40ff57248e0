"""The native engine: a regular language as a byte automaton, and its masks over a vocabulary, made when needed."""
