"""``hf-guided serve``: the server of transformers, with constraints.

The app, its routes, the loading of models, streaming and the reading of tool calls are transformers' own
(``transformers serve``). What is added lies around them:

    request ──► handlers: what is asked (asked.py), compiled and checked before anything runs; 400 if it cannot be
                    │
                    ▼
    transformers' handler ──► stand-in for the model (steered.py), whose generate() keeps to the constraint

Needs the extra ``serve``; nothing outside this package imports it, except the command line when it is asked to serve.
"""
