"""Answers the rows of a data set over any number of processes: ``accelerate launch -m hf_guided.cli.batch``.

``arguments`` are those of the command line, and a ``job`` is what two runs have to agree in. ``formats`` opens the
input as one of the tables (``tables``: JSONL and CSV; ``arrow_tables``: Parquet and folders of datasets), ``rows``
reads each row's request, ``worker`` answers one process's share, ``parts`` keeps the answers where a kill cannot
hurt them, and ``outputs`` (``arrow_outputs``) writes them, beside the columns that are carried along. ``run`` is all
of that.

Batches are made of neighbouring rows and belong to a process by their number; every row draws with a seed of its own.
So a row's answer does not depend on how often the job was stopped.
"""
