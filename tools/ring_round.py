#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""One round of tools/bench-ring: runs the samples that it is told to, one after the other. Prints a JSON list."""

import json
import sys

import benchlib

OPTIONS = ('backend', 'ring', 'dir', 'size', 'pairs', 'entries', 'net')


def arguments(spec, sample):
    """What a sample's program is called with."""
    words = [f'{name}={sample[name]}' for name in OPTIONS if sample.get(name) not in (None, '-')]
    subject = 'bare' if sample['subject'] == 'bare' else 'device'
    return [*words, f'subject={subject}', f'ms={max(1, round(spec["seconds"] * 1000))}', f'pin={int(spec["pin"])}']


def measure(spec, _work):
    results = []
    for sample in spec['samples']:
        program = spec['programs']['uncounted' if sample['subject'] == 'uncounted' else 'counted']
        try:
            output = benchlib.run([program, *arguments(spec, sample)], 60 + 30 * spec['seconds'])
            results.append({**json.loads(output.splitlines()[-1]), **sample})
        except benchlib.Failed as err:
            # Another round may do better, and so may the other samples.
            results.append({**sample, 'failed': str(err).rsplit('ring: ', 1)[-1]})
    return results


if __name__ == '__main__':
    sys.exit(benchlib.round_main('bench-ring', measure))
