"""Trains a teacher or a student, as a recipe says.

Use: `accelerate launch recipes/train.py RECIPE [key=value ...]`
"""

import sys

from hf_cmal.cli.main import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
