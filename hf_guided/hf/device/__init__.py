"""The device lane: constraints, rows and masks as plain tensors, and what moves them, in torch.

``tables`` are constraints and vocabularies as tensors, ``lane`` is the state of a batch of rows, ``reference`` advances
it, ``sampling`` picks tokens, and ``candidates`` picks among the best of them. The CUDA kernels of
kernels/guided_bitmask do the same with the same tensors, faster; the torch code is their test reference, and runs where
there are no kernels.
"""
