# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures: `host` makes network namespaces, `whelp` starts machines; both are taken down at the test's end."""

import contextlib

import libvm
import pytest


@pytest.fixture
def host():
    made = libvm.Host()
    yield made
    made.close()


@pytest.fixture
def whelp(tmp_path):
    """whelp(OPTION..., host=..., ...) is a libvm.Whelp."""
    with contextlib.ExitStack() as stack:
        def start(*options, **more):
            machine = libvm.Whelp(tmp_path, *options, **more)
            stack.callback(machine.close)
            return machine
        yield start


@pytest.fixture
def micro(tmp_path):
    """micro(code) is the path of a kernel made of that machine code."""
    import micro as assembler
    numbers = iter(range(1000))

    def make(code):
        path = tmp_path / f'micro-{next(numbers)}'
        path.write_bytes(assembler.elf(code))
        return str(path)
    return make


def pytest_runtest_setup(item):
    del item
    libvm.machines[:] = [machine for machine in libvm.machines if machine.process.poll() is None]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    del item, call
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for machine in libvm.machines[-3:]:
            report.sections.append((f'whelp {machine.number}: messages', machine.errors))
            if machine.process.poll() is None:
                report.sections.append((f'whelp {machine.number}: threads', machine.threads()))
            report.sections.append((f'whelp {machine.number}: end of the console', machine.console[-4000:]))
