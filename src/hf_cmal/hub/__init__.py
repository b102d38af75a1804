"""A finished folder goes to the Hub (`push.py`) with a card that its evaluation wrote (`model_card.py`)."""
