"""Lets a teacher write the pseudo-targets, as a recipe says.

Use: `accelerate launch recipes/distill.py RECIPE [key=value ...]`
"""

import sys

from hf_cmal.cli.main import main

if __name__ == "__main__":
    main(["distill", *sys.argv[1:]])
