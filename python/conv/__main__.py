#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""python -m conv, and the command conv: the program in the package, which is not imported, as that takes ten times as long."""

import os
import sys
from importlib.util import find_spec

if __name__ == "__main__":
    program = os.path.join(find_spec("conv").submodule_search_locations[0], "bin", "conv")
    os.execv(program, [program, *sys.argv[1:]])
