"""Guides a data set over any number of processes: ``accelerate launch -m hf_guided.batch``.

``job`` is what is asked, ``rows`` reads the input, ``parts`` keeps what is done where a kill cannot hurt it, ``worker``
is one process's share, and ``__main__`` the command line.

Batches are made of neighbouring rows and belong to a process by their number; every row draws with a seed of its own.
So a row's answer does not depend on how often the job was stopped.
"""
