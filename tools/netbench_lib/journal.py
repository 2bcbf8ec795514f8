# SPDX-License-Identifier: GPL-2.0-or-later
"""The result as it grows: one line of JSON for each event, appended and on the disk before the next one.

Events: "start" (versions, time), "lab" (one begins), "machine" (what it is), "booted", "run" (a measurement), "set" (one is
complete), "discarded" (a run whose sessions did not all work at the same time), "left_out" (a machine of a set, and why),
"given_up" (a set, and why), "fault" (of a lab), "no_boot" (a machine). All but the first have the lab's number.
"""

import json
import os

import benchlib


class Journal:
    def __init__(self, path):
        self.path = path
        self.events = read(path)
        self._file = open(path, 'ab', buffering=0)
        # What a crash cut short is no line; the next one begins after it.
        whole = path.read_bytes().rfind(b'\n') + 1
        self._file.truncate(whole)

    def add(self, **event):
        self._file.write(json.dumps(event).encode() + b'\n')
        os.fsync(self._file.fileno())
        self.events.append(event)

    def close(self):
        self._file.close()


def read(path):
    """The events of a journal; an unfinished last line is none."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b'\n')[:-1]
    try:
        return [json.loads(line) for line in lines]
    except ValueError as err:
        raise benchlib.Failed(f'{path} is damaged: {err}') from err
