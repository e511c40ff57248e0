"""The fast loop: cache slots, prefill, jump-forward, drafts, sampling, stopping."""
