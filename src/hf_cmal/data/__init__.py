"""What we learn from: raw sentence pairs and captions, the tokenizer, encoding into ids, batching.

In reading order: `columns`, `parallel_text`, `tokenizer`, `encoding`, `collators`, `statistics`.
Import from the modules.
"""
