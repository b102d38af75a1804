"""A trained folder becomes a release (`release.py`) with a card from its evaluation (`model_card.py`);
a finished folder goes to the Hub (`push.py`)."""
