"""Shared pieces of the tests are imported as `tests.<room>.<module>`."""
