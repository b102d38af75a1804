"""Measuring: quality of decoded text, latency against a rival in the same run, and the pages made from the
results.
"""
