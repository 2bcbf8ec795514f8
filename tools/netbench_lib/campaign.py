# SPDX-License-Identifier: GPL-2.0-or-later
"""A run of netbench that is a part of another bench: it has a directory by its name, and goes on where it was stopped."""

import json

from netbench_lib import journal, report, rounds, tables


def bare(plan):
    """A plan without what measuring adds to it."""
    return {**plan, 'machines': [{key: value for key, value in entry.items() if key != 'kept'}
                                 for entry in plan['machines']]}


def measure(plan, directory, fresh=False):
    """Measures what is missing of a plan; whether something had to be left out.

    What the directory has of another plan is measured anew.
    """
    directory.mkdir(parents=True, exist_ok=True)
    place, path = directory / 'plan.json', directory / 'journal.jsonl'
    if fresh or not place.exists() or bare(json.loads(place.read_text(encoding='utf-8'))) != plan:
        path.unlink(missing_ok=True)
        for program in directory.glob('programs/*'):
            program.unlink()
        place.write_text(json.dumps(plan, indent=1) + '\n', encoding='utf-8')
    kept = journal.Journal(path)
    try:
        before = tables.gather(plan, kept.events)
        if before['sets_done'] == before['sets']:
            print('measured before')
        else:
            rounds.measure(plan, kept, directory)
    finally:
        kept.close()
        result = report.gather(plan, kept.events)
        if result['cells']:
            report.write(result, directory)
    return bool(result['left_out'])


def read(directory):
    """What a directory has, as report.gather gives it; None before anything was measured."""
    place = directory / 'plan.json'
    if not place.exists():
        return None
    result = report.gather(json.loads(place.read_text(encoding='utf-8')), journal.read(directory / 'journal.jsonl'))
    return result if result['cells'] else None
