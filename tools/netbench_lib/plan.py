# SPDX-License-Identifier: GPL-2.0-or-later
"""What is measured, in which order, and what is left of it.

A plan has machines and cases. A set is one measurement of one case on each machine of a group, one after the other: what
is compared lies that close together. A lab is one round of one group: its machines are booted, all its sets measured.
The first machine with the same number of CPUs and queue pairs is the group's reference and is in each group, so that
every ratio has both of its sides in one set.
"""


def case_name(case):
    sessions = f', {case["sessions"]} sessions' if case['sessions'] > 1 else ''
    return f'{case["test"]} {case["way"]} {case["size"]} B{sessions}'


def possible(machine, case):
    return machine['kind'] != 'loopback' or (case['way'] == 'host-guest' and case['test'] != 'PKTGEN')


def guests_of(machine, cases):
    if machine['kind'] == 'loopback':
        return 0
    return 2 if any(case['way'] == 'guest-guest' for case in cases) else 1


def groups(plan):
    """Lists of machines for a lab each, the reference first, as many as may be up at the same time."""
    found = []
    blocks = {}
    for machine in plan['machines']:
        blocks.setdefault(machine['block'], []).append(machine)
    for reference, *others in blocks.values():
        room = plan['guests'] - guests_of(reference, plan['cases'])
        group = [reference]
        for machine in others:
            need = guests_of(machine, plan['cases'])
            if need > room and len(group) > 1:
                found.append(group)
                group, room = [reference], plan['guests'] - guests_of(reference, plan['cases'])
            group.append(machine)
            room -= need
        found.append(group)
    return found


def turned(items, by):
    by %= max(1, len(items))
    return items[by:] + items[:by]


def labs(plan):
    """All labs in their order. Which case and which machine comes first, changes from round to round."""
    found = []
    for number in range(plan['rounds']):
        for index, group in enumerate(groups(plan)):
            order = turned(group, number)
            sets = []
            # A machine without guests has nothing of most ways; a case that none of the group can do is no set.
            for repeat in range(plan['repeat']):
                for case in turned(list(range(len(plan['cases']))), number):
                    names = [machine['name'] for machine in order if possible(machine, plan['cases'][case])]
                    if names:
                        sets.append({'id': f'{number}.{index}.{case}.{repeat}', 'case': case, 'machines': names})
            found.append({'round': number, 'group': index, 'machines': order, 'sets': sets})
    return found


def finished(events):
    """The ids of sets that need not be measured: complete ones, and those that were given up."""
    return {event['set'] for event in events if event['event'] in ('set', 'given_up')}


def left(lab, events):
    done = finished(events)
    return [entry for entry in lab['sets'] if entry['id'] not in done]


def runs(events):
    """The runs that count: those of complete sets, from the lab in which the set was completed."""
    complete = {event['set']: event['lab'] for event in events if event['event'] == 'set'}
    return [event for event in events
            if event['event'] == 'run' and complete.get(event['set']) == event['lab']]


def count_runs(plan):
    return sum(len(entry['machines']) for lab in labs(plan) for entry in lab['sets'])
