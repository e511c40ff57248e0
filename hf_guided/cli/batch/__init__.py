"""Answers the rows of a data set over any number of processes: ``accelerate launch -m hf_guided.cli.batch``.

``arguments`` are those of the command line, and ``places`` are paths and URLs. ``tables`` reads the rows, and writes
answers beside their columns, as JSONL or CSV; ``arrow`` does so for Parquet and for folders of the package datasets.
``parts`` keeps answers where a kill cannot hurt them. ``run`` answers one process's share of the rows.

Batches are made of neighbouring rows and belong to a process by their number; every row draws with a seed of its own.
So a row's answer does not depend on how often the job was stopped.
"""
