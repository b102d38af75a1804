"""Scores and times the systems, as a recipe says.

Use: `accelerate launch recipes/evaluate.py RECIPE [key=value ...]`
"""

import sys

from hf_cmal.cli.main import main

if __name__ == "__main__":
    main(["evaluate", *sys.argv[1:]])
