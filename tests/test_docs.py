# SPDX-License-Identifier: GPL-2.0-or-later
"""That docs/virtio-net.md's table has every feature, as the sources have it, and names tests that exist."""

import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / 'tests/vm')]
import test_features as vm  # noqa: E402

KERNELS = {'cloud': (6, 1), 'backports': (6, 12), 'unstable': (7, 2)}
ROW = re.compile(r'\| (\d+) \| `(\w+)` \| (.*) \| (none|\d+\.\d+) \| (yes|no) \| (yes|no) \| (yes|no) \| (.*) \|')


def table():
    """Its rows by name: (bit, what it does, since, taken by each kernel, tests)."""
    rows = {}
    for line in (ROOT / 'docs/virtio-net.md').read_text().splitlines():
        if re.match(r'\| \d', line):
            found = ROW.fullmatch(line)
            assert found, f'not a row: {line}'
            rows[found[2]] = (int(found[1]), found[3], found[4], found.group(5, 6, 7), found[8])
    return rows


def features():
    """Those of vmm/net_features.c by name: (what it does, whether it is off by default)."""
    text = (ROOT / 'vmm/net_features.c').read_text()
    text = text[text.index('net_features[] = {'):text.index('\n};')]
    found = re.findall(r'\{ "(\w+)", [^,]*,\s*"([^"]*)",\s*(ON|OFF|ALWAYS)', text)
    assert len(found) == text.count('\t{ "')
    return {name: (text, use == 'OFF') for name, text, use in found}


def test_every_feature_has_a_row():
    rows, known = table(), features()
    assert list(rows) == list(known)
    assert {name: row[0] for name, row in rows.items()} == vm.BITS
    for name, (text, off) in known.items():
        assert rows[name][1].startswith(text), name
        assert ('**Off** by default' in rows[name][1]) == off, name


@pytest.mark.parametrize('column, kernel', enumerate(KERNELS))
def test_who_takes_it(column, kernel):
    """As vm/test_features and vm/test_tunnels have it, and not before the kernel that is said to be the first."""
    taken = vm.TAKEN[kernel] | vm.EXTRA_TAKEN[kernel]
    for name, (_, _, since, columns, tests) in table().items():
        newer = since == 'none' or tuple(map(int, since.split('.'))) > KERNELS[kernel]
        assert columns[column] == ('no' if newer else 'yes'), name
        if 'tunnel' in name:
            assert 'vm/test_tunnels::' in tests, name
        else:
            assert columns[column] == ('yes' if name in taken else 'no'), name


def test_the_tests_exist():
    for name, (_, _, _, _, tests) in table().items():
        for module in tests.split('; '):
            found = re.fullmatch(r'(unit|vm)/(test_\w+)::(test_\w+(?:, test_\w+)*)(?: \(`.*`\))?', module)
            assert found, f'{name}: {module}'
            path = ROOT / 'tests' / found[1] / (found[2] + ('.c' if found[1] == 'unit' else '.py'))
            text = path.read_text()
            for test in found[3].split(', '):
                declared = rf'^static void {test}\(void' if found[1] == 'unit' else rf'^def {test}\('
                assert re.search(declared, text, re.M), f'{name}: {path.name} has no {test}'
                # A unit test that nobody runs is none.
                assert found[1] == 'vm' or re.search(rf'[(\s]{test}[,)]', text), f'{name}: {test} is not run'
