# SPDX-License-Identifier: GPL-2.0-or-later
"""tools/bench-performance's runs of netbench. In each all machines are up together: every ratio is within a set."""

import typing

PEERS = ('qemu', 'qemu-vhost', 'qemu-timer')
POLICIES = {'off': 'off', 'fixed': 'fixed:150', 'lguest': 'lguest', 'window': 'window:200', 'adaptive': 'adaptive'}
MATRIX = ('--tests', 'TCP_STREAM,TCP_MAERTS,TCP_RR,UDP_RR,PING,UDP_STREAM:64', '--ways', 'guest-host,host-guest',
          '--memory', '256')


class Campaign(typing.NamedTuple):
    title: str
    argv: tuple  # netbench's, without --rounds, --seconds, --lab-cpus


def variants(keys):
    return tuple(word for name, value in keys.items() for word in ('--variant', f'{name}:{value}' if value else name))


CAMPAIGNS = {
    'targets': Campaign('whelp beside QEMU, one CPU, one queue pair',
                        (*MATRIX, '--guests', '4', *variants({'whelp': ''}),
                         *(word for peer in PEERS for word in ('--peer', peer)))),
    'policies': Campaign('whelp\'s mitigation policies',
                         (*MATRIX, '--guests', '5',
                          *variants({name: f'mitigation={value}' for name, value in POLICIES.items()}))),
    'pairs': Campaign('one session over four queue pairs, beside one pair',
                      (*MATRIX, '--guests', '2', '--cpus', '4', *variants({'one': 'queues=1', 'four': 'queues=4'}))),
}
