# SPDX-License-Identifier: GPL-2.0-or-later
"""For tests of what is in tools/: whoever imports this can import its modules, and load its programs."""

import importlib.machinery
import importlib.util
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOOLS = ROOT / 'tools'
sys.path.insert(0, str(TOOLS))


def load(name):
    """tools/NAME, which has no .py, as a module; its main() does not run."""
    loader = importlib.machinery.SourceFileLoader(name.replace('-', '_'), str(TOOLS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module
