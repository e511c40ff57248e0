"""The native engine: a regular language as a byte automaton, and its masks over a vocabulary, made when needed."""

# np.unique imports it at its first call: in a child that is forked meanwhile, that import never ends.
import numpy.ma  # noqa: F401
