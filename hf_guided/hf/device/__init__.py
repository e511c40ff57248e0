"""The device lane: constraints, rows and masks as plain tensors, and what moves them, in torch.

``tables`` are constraints and vocabularies as tensors, ``lane`` is what a batch of rows owns, ``reference`` moves it,
``sampling`` picks tokens, and ``candidates`` picks among the best of them. The CUDA kernels of kernels/guided_bitmask
do the same with the same tensors, faster; this is what they are tested against, and what runs wherever they do not.
"""
