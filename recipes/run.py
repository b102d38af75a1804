"""Runs all stages of a ladder, one after the other.

Use: `accelerate launch recipes/run.py FOLDER [key=value ...]`
"""

import sys

from hf_cmal.cli.main import main

if __name__ == "__main__":
    main(["run", *sys.argv[1:]])
