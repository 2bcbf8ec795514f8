# SPDX-License-Identifier: GPL-2.0-or-later
"""tools/netbench's parts.

options.py   the command line, checked, as a plan
plan.py      what is to be measured, in which order, and what is left of it
journal.py   the result as it grows: a line for each event
campaign.py  a run that is a part of another bench
rounds.py    labs, one after the other, from the plan and the journal
round.py     one lab: the program that runs beside the guests
machines.py  the VMMs, their command lines, their guests
traffic.py   the tests: how each is run, and what its output says
nbrun.c      sessions that run at the same time, on the host and in guests
probes.py    what the kernels say: CPU, interrupts, exits, protocols
figures.py   a run's figures, statistics over runs
tables.py    the result's cells and tables; report.py and report_html.py: the four reports
"""
