# SPDX-License-Identifier: GPL-2.0-or-later
"""tools/bench-performance's parts.

campaigns.py  its runs of netbench
targets.py    which targets there are, and what the results say of each
condensed.py  the results as short tables
page.py       the parts of docs/performance.md that are made, and its section of misses
plots.py      the plots, by matplotlib
"""
