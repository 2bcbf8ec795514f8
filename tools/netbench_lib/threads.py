# SPDX-License-Identifier: GPL-2.0-or-later
"""The mailing-list threads' findings, as runs of netbench, and what ours say of each. tools/bench-threads runs them.

A topic is one run of netbench: its machines, tests and claims. A claim is a ratio between two machines, in a test and by a
metric, with the authors' ratio and its direction.
"""

import statistics
import typing

from netbench_lib import traffic

# How far from 1 a ratio must be to be a difference, and may be to be none.
SLACK = 0.03
METRICS = {'figure': '', 'sd_host': 'service demand of the host', 'sd_guest': 'service demand of the guest',
           'irq_tx': 'transmit interrupts per packet', 'irq_rx': 'receive interrupts per packet', 'kicks': 'kicks per packet',
           'exits': 'exits per packet'}


class Claim(typing.NamedTuple):
    """machine is `sign` other: '>' more, '<' less, '~' no different. theirs: the authors' ratio or ratios, as text."""
    text: str
    theirs: str
    machine: str
    sign: str
    other: str
    test: str
    way: str = 'host-guest'
    size: typing.Optional[int] = None
    sessions: typing.Optional[int] = None
    metric: str = 'figure'


class Topic(typing.NamedTuple):
    title: str
    source: str
    theirs: tuple  # lines of Markdown: what the authors measured
    argv: tuple  # netbench's, without --rounds, --seconds, --out
    claims: tuple
    note: str = ''
    needs_cpus: int = 1  # of the machine on which the VMMs run


def variant(name, keys=''):
    return ('--variant', f'{name}:{keys}' if keys else name)


# ---- 2008 ------------------------------------------------------------------------------------------

# What neither host nor guest had in 2008.
THEN = '-mrg_rxbuf,-indirect_desc,-event_idx,poll=off'
BARE = f'-csum,-guest_csum,{THEN}'
OLD = 'intr=packet,lock=hold,rx=copy,ring=128'

YEAR_2008 = Topic(
    'Nine patches, and lguest', 'KVM virtio_net performance, 2008',
    ('| row | guest to host, Gb/s | host to guest, Gb/s | ping from the guest, ms | ping from the host, ms |',
     '| --- | ---: | ---: | ---: | ---: |',
     '| baseline: timer nominally 2 ns, in effect 2 ns to 250 us | 1.573 | 1.357 | 0.459 | 0.331 |',
     '| timer of 50 us, re-armed | 1.086 | 1.832 | 0.143 | 0.133 |',
     '| timer of 250 us | 1.764 | 1.203 | 0.463 | 0.344 |',
     '| timer of 150 us | 1.602 | 1.928 | 0.323 | 0.245 |',
     '| a kick while the timer runs flushes | 1.569 | 1.857 | 0.324 | 0.243 |',
     '| interrupt when the ring is used up, and once a batch | 1.604 | 1.960 | 0.321 | 0.242 |',
     '| no kicks for receive buffers until they run out | 1.604 | 1.944 | 0.321 | 0.233 |',
     '| GSO and partial checksums | 4.323 | 7.033 | 0.324 | 0.246 |',
     '| ring of 256 | 4.406 | 7.236 | 0.323 | 0.243 |',
     '| ring of 512 | 4.600 | 7.205 | | |',
     '| lock dropped while the tap is read | 4.578 | 8.589 | 0.323 | 0.242 |',
     '| tap read straight into guest buffers | 4.694 | 8.614 | 0.325 | 0.245 |',
     '| lguest | 5.926 | 9.073 | 0.055 | 0.046 |',
     '| host loopback | 12.473 | | 0.002 | |'),
    ('--tests', 'TCP_MAERTS,TCP_STREAM,PING', '--ways', 'host-guest',
     *variant('timer1', f'mitigation=fixed:1,{OLD},{BARE}'),
     *variant('timer50', f'mitigation=fixed:50,{OLD},{BARE}'),
     *variant('timer250', f'mitigation=fixed:250,{OLD},{BARE}'),
     *variant('timer150', f'mitigation=fixed:150,{OLD},{BARE}'),
     *variant('empty', f'mitigation=fixed:150,intr=empty,lock=hold,rx=copy,ring=128,{BARE}'),
     *variant('gso', f'mitigation=fixed:150,intr=empty,lock=hold,rx=copy,ring=128,{THEN}'),
     *variant('ring256', f'mitigation=fixed:150,intr=empty,lock=hold,rx=copy,ring=256,{THEN}'),
     *variant('ring512', f'mitigation=fixed:150,intr=empty,lock=hold,rx=copy,ring=512,{THEN}'),
     *variant('drop', f'mitigation=fixed:150,intr=empty,lock=drop,rx=copy,ring=512,{THEN}'),
     *variant('zerocopy', f'mitigation=fixed:150,intr=empty,lock=none,rx=zerocopy,ring=512,{THEN}'),
     *variant('lguest', f'mitigation=lguest,intr=empty,lock=none,rx=zerocopy,ring=512,{THEN}'),
     *variant('today'), '--peer', 'loopback'),
    (Claim('a short timer makes a short way', '0.31', 'timer50', '<', 'timer250', 'PING'),
     Claim('a timer of 150 us makes a shorter way than one of 250 us', '0.71', 'timer150', '<', 'timer250', 'PING'),
     Claim('a timer of 250 us carries more from the guest than one of 50 us', '1.62', 'timer250', '>', 'timer50',
           'TCP_MAERTS'),
     Claim('... and less to the guest', '0.66', 'timer250', '<', 'timer50', 'TCP_STREAM'),
     Claim('an interrupt when the ring is used up, and one a batch, carries a little more to the guest', '1.06', 'empty',
           '>', 'timer150', 'TCP_STREAM'),
     Claim('GSO and partial checksums carry much more from the guest', '2.70', 'gso', '>', 'empty', 'TCP_MAERTS'),
     Claim('... and to it', '3.62', 'gso', '>', 'empty', 'TCP_STREAM'),
     Claim('... and leave the way as long as it was', '1.01', 'gso', '~', 'empty', 'PING'),
     Claim('a ring of 512 carries a little more from the guest than one of 256', '1.04', 'ring512', '>', 'ring256',
           'TCP_MAERTS'),
     Claim('without the lock while the tap is read more comes to the guest', '1.19', 'drop', '>', 'ring512', 'TCP_STREAM'),
     Claim('a copy fewer carries a little more from the guest', '1.03', 'zerocopy', '>', 'drop', 'TCP_MAERTS'),
     Claim('... and no more to it', '1.00', 'zerocopy', '~', 'drop', 'TCP_STREAM'),
     Claim('lguest, which sends at once and only then waits, has a far shorter way', '0.19', 'lguest', '<', 'zerocopy',
           'PING'),
     Claim('... and carries more from the guest', '1.26', 'lguest', '>', 'zerocopy', 'TCP_MAERTS'),
     Claim('today\'s defaults have lguest\'s short way', 'none', 'today', '~', 'lguest', 'PING'),
     Claim('... and carry more from the guest', 'none', 'today', '>', 'lguest', 'TCP_MAERTS'),
     Claim('the host with itself carries more', '2.66', 'loopback', '>', 'zerocopy', 'TCP_MAERTS')),
    'Two of their steps are none here: a kick while the timer runs always flushes, and receive buffers are never kicked for '
    'until they run out. The way from the guest and to it is one ping. TCP_MAERTS is guest to host, TCP_STREAM host to guest.')


# ---- several queues --------------------------------------------------------------------------------

MULTIQUEUE = Topic(
    'Several queue pairs against one, by sessions', 'Multiqueue virtio-net, 2010 to 2012',
    ('- A thread for each transmit queue: +54 to +72 % at 4 to 96 sessions, UDP +90 to +156 %; -3 to -20 % at one session.',
     '- The loss at one session comes from handling both directions of a flow on two threads; one thread for both '
     'queues of a pair cures it.',
     '- Several queues cost CPU: service demand rises with them.'),
    ('--tests', 'TCP_STREAM:512+16K,TCP_MAERTS:512+16K,UDP_STREAM:1K,TCP_RR', '--ways', 'host-guest', '--sessions',
     '1,4,16,64', '--cpus', '4', *variant('one', 'queues=1'), *variant('four', 'queues=4')),
    (Claim('at 16 sessions four pairs carry more from the guest', '1.54 to 1.72', 'four', '>', 'one', 'TCP_MAERTS',
           size=16384, sessions=16),
     Claim('... and in small messages', '1.54 to 1.72', 'four', '>', 'one', 'TCP_MAERTS', size=512, sessions=16),
     Claim('... and to the guest', 'more', 'four', '>', 'one', 'TCP_STREAM', size=16384, sessions=16),
     Claim('... and at 64 sessions', '1.54 to 1.72', 'four', '>', 'one', 'TCP_MAERTS', size=16384, sessions=64),
     Claim('at 16 sessions they make more round trips', 'more', 'four', '>', 'one', 'TCP_RR', sessions=16),
     Claim('at one session they cost nothing, as a pair has one thread', '0.80 to 0.97 with two threads', 'four', '~',
           'one', 'TCP_MAERTS', size=16384, sessions=1),
     Claim('they take more of the host\'s CPU for the same work', 'more', 'four', '>', 'one', 'TCP_MAERTS', size=16384,
           sessions=16, metric='sd_host')), needs_cpus=2)

WORKERS = Topic(
    'Threads: one for a pair, one for each queue, one for all', 'Multiqueue virtio-net, 2010 to 2012; vhost with several '
    'workers, 2012',
    ('- One thread for each of 1:1 pairs won over fewer threads than queues.',
     '- RX and TX of one flow on two threads: -3 to -20 % at one session.',
     '- A vhost worker for each queue: TCP_RR +19 to +55 % at 30 to 60 instances, -14 % at 10; small TCP_MAERTS -16 %.'),
    ('--tests', 'TCP_STREAM,TCP_MAERTS:64+16K,TCP_RR', '--ways', 'host-guest', '--sessions', '1,10,32', '--cpus', '4',
     *variant('pair', 'queues=4,workers=pair'), *variant('split', 'queues=4,workers=split'),
     *variant('single', 'queues=4,workers=one')),
    (Claim('at one session two threads carry less than one for the pair', '0.80 to 0.97', 'split', '<', 'pair', 'TCP_MAERTS',
           size=16384, sessions=1),
     Claim('... and make fewer round trips', 'fewer', 'split', '<', 'pair', 'TCP_RR', sessions=1),
     Claim('at 10 sessions two threads make fewer round trips', '0.86', 'split', '<', 'pair', 'TCP_RR', sessions=10),
     Claim('at 32 sessions they make more', '1.19 to 1.55', 'split', '>', 'pair', 'TCP_RR', sessions=32),
     Claim('small messages from the guest come slower with two threads', '0.84', 'split', '<', 'pair', 'TCP_MAERTS',
           size=64, sessions=10),
     Claim('a thread for each pair carries more than one for all', 'more', 'pair', '>', 'single', 'TCP_MAERTS', size=16384,
           sessions=32)), needs_cpus=2)

PINNING = Topic(
    'Threads on CPUs of their own', 'Multiqueue virtio-net, 2010 to 2012',
    ('- Pinning the threads: +10 % bandwidth and -70 % service demand against letting them float.',),
    ('--tests', 'TCP_STREAM,TCP_MAERTS', '--ways', 'host-guest', '--sessions', '1,16', '--cpus', '2',
     *variant('float', 'queues=2'), *variant('pinned', 'queues=2,affinity=0:1')),
    (Claim('pinned threads carry more', '1.10', 'pinned', '>', 'float', 'TCP_MAERTS', sessions=16),
     Claim('... for less CPU', '0.30', 'pinned', '<', 'float', 'TCP_MAERTS', sessions=16, metric='sd_host')), needs_cpus=2)

SPINNING = Topic(
    'Spinning before sleep', 'vhost with several workers, 2012; busy polling',
    ('- With a worker for each queue and optional spinning, TCP_RR +19 to +55 % at 30 to 60 instances.',
     '- Busy polling both ways doubled what a guest received, for a CPU. The question that goes with it: what is throughput '
     'divided by host CPU?'),
    ('--tests', 'TCP_RR,UDP_RR,TCP_STREAM', '--ways', 'host-guest', '--sessions', '1,10,32', *variant('asleep', 'poll=off'),
     *variant('adapts', 'poll=auto'), *variant('spins', 'poll=50')),
    (Claim('spinning makes more round trips at 32 sessions', '1.19 to 1.55', 'spins', '>', 'asleep', 'TCP_RR', sessions=32),
     Claim('... and at one', 'more', 'spins', '>', 'asleep', 'TCP_RR', sessions=1),
     Claim('... for more CPU each', 'more', 'spins', '>', 'asleep', 'TCP_RR', sessions=1, metric='sd_host'),
     Claim('a spin that adapts is no slower than none', 'none', 'adapts', '~', 'asleep', 'TCP_RR', sessions=1),
     Claim('... and takes no more CPU', 'none', 'adapts', '~', 'asleep', 'TCP_STREAM', sessions=1, metric='sd_host')))


# ---- bridge, and new drivers -----------------------------------------------------------------------

BRIDGE = Topic(
    'Between guests over a bridge, with and without offloads', 'Throughput between guests, 2017',
    ('- Receive batching in the host raised UDP and pktgen by 5 to 10 %, and cut TCP by 5 to 10 % between guests and by 25 '
     'to 30 % from the host to a guest: it changes how acknowledgements come.',
     '- Evidence: netstat\'s counters at both ends (here in the details of each run\'s own reports).'),
    ('--tests', 'TCP_STREAM,UDP_STREAM,PKTGEN', '--ways', 'host-guest,guest-host,guest-guest', *variant('batches'),
     *variant('singly', 'budget=1'), *variant('plain', '@offloads=off')),
    (Claim('batches carry more of pktgen\'s packets between guests', '1.05 to 1.10', 'batches', '>', 'singly', 'PKTGEN',
           'guest-guest'),
     Claim('... and more UDP', '1.05 to 1.10', 'batches', '>', 'singly', 'UDP_STREAM', 'guest-guest'),
     Claim('... and less TCP between guests', '0.90 to 0.95', 'batches', '<', 'singly', 'TCP_STREAM', 'guest-guest'),
     Claim('... and less from the host', '0.70 to 0.75', 'batches', '<', 'singly', 'TCP_STREAM', 'host-guest'),
     Claim('without offloads TCP between guests is slower', 'slower', 'plain', '<', 'batches', 'TCP_STREAM', 'guest-guest'),
     Claim('... and from the host', 'slower', 'plain', '<', 'batches', 'TCP_STREAM', 'host-guest')),
    'Theirs batched in the tap driver of the host, for vhost; ours takes one packet instead of 64 before the other '
    'direction has its turn (budget=1).')

TX_NAPI = Topic(
    'Transmit interrupts with old and new drivers', 'virtio-net TX in NAPI mode, 2025',
    ('- pktgen, 64 bytes, one queue, a device that polls: split ring 6.89 to 10.7 Mpps, packed 7.09 to 10.7; transmit interrupts '
     '-32 to -99 %.',
     '- One netperf stream, one CPU, vhost: 31 to 58 Gb/s, deviation 34.5 to 1.9 %, transmit interrupts -88 %.'),
    ('--tests', 'PKTGEN,TCP_STREAM', '--ways', 'guest-host', '--pktgen-burst', '256',
     *variant('old', '@kernel=backports-cloud'), *variant('new', '@kernel=unstable-cloud'),
     *variant('old-packed', '+ring_packed,@kernel=backports-cloud'),
     *variant('new-packed', '+ring_packed,@kernel=unstable-cloud')),
    (Claim('pktgen sends more with the new driver', '1.55', 'new', '>', 'old', 'PKTGEN', 'guest-host'),
     Claim('... with packed rings, too', '1.51', 'new-packed', '>', 'old-packed', 'PKTGEN', 'guest-host'),
     Claim('... with fewer transmit interrupts', '0.01 to 0.68', 'new', '<', 'old', 'PKTGEN', 'guest-host', metric='irq_tx'),
     Claim('one stream carries more', '1.87', 'new', '>', 'old', 'TCP_STREAM', 'guest-host'),
     Claim('... with fewer transmit interrupts', '0.12', 'new', '<', 'old', 'TCP_STREAM', 'guest-host', metric='irq_tx')),
    'Old is Debian\'s Linux 6.12, new its 7.2.')

TOPICS = {'2008': YEAR_2008, 'multiqueue': MULTIQUEUE, 'workers': WORKERS, 'pinning': PINNING, 'spinning': SPINNING,
          'bridge': BRIDGE, 'tx-interrupts': TX_NAPI}


# ---- what came out ---------------------------------------------------------------------------------


def _matches(claim, cell):
    return (cell['test'] == claim.test and cell['way'] == claim.way and
            claim.size in (None, cell['size']) and claim.sessions in (None, cell['sessions']))


def _values(claim, result, name):
    """{set: value} of a machine, and of its reference in the same sets."""
    found = {cell['machine']: cell for cell in result['cells'] if _matches(claim, cell)}
    if name not in found:
        return {}, {}

    def values(cell):
        return {run['set']: run['figure'] if claim.metric == 'figure' else run['metrics'].get(claim.metric, 0.0)
                for run in cell['runs']}
    reference = found.get(found[name]['reference'])
    return values(found[name]), values(reference) if reference else {}


def ratios(claim, result):
    """Of the claim's two machines: within each set that has both, else by way of the reference that their sets share."""
    ours, our_reference = _values(claim, result, claim.machine)
    theirs, their_reference = _values(claim, result, claim.other)
    both = [ours[key] / theirs[key] for key in ours if theirs.get(key)]
    if both:
        return both
    ours = [value / our_reference[key] for key, value in ours.items() if our_reference.get(key)]
    theirs = [value / their_reference[key] for key, value in theirs.items() if their_reference.get(key)]
    # Pairs in the order of the rounds.
    return [one / other for one, other in zip(ours, theirs) if other]


def verdict(sign, found):
    """What ratios say of a claim."""
    if not found:
        return 'not measured'
    median = statistics.median(found)
    different = abs(median - 1) > SLACK and not min(found) <= 1 <= max(found)
    if sign == '~':
        if not different:
            return 'confirmed here'
        return 'not confirmed here: more' if median > 1 else 'not confirmed here: less'
    if not different:
        return 'not seen here: within the spread'
    return 'confirmed here' if (median > 1) == (sign == '>') else 'not confirmed here: the other way round'


def claim_row(claim, result):
    found = ratios(claim, result)
    ours = '' if not found else f'{statistics.median(found):.2f}' + (
        f' ({min(found):.2f} to {max(found):.2f})' if len(found) > 1 else '')
    unit = METRICS[claim.metric] or traffic.UNITS[traffic.TESTS[claim.test].kind]
    sessions = f', {claim.sessions} sessions' if (claim.sessions or 1) > 1 else ''
    size = f', {claim.size} B' if claim.size else ''
    return [claim.text, f'{claim.machine} / {claim.other}', f'{claim.test} {claim.way}{size}{sessions}: {unit}',
            claim.theirs, ours, len(found), verdict(claim.sign, found)]


CLAIM_HEAD = ['finding', 'ratio of', 'in', 'theirs', 'ours', 'n', 'verdict']


def unknown_keys(topic, known):
    """Keys of the topic's variants that a whelp does not have, of those it has."""
    found = {}
    for word, value in zip(topic.argv, topic.argv[1:]):
        if word == '--variant':
            for key in filter(None, value.partition(':')[2].split(',')):
                name = key.partition('=')[0]
                if not key.startswith('@') and name.lstrip('+-') not in known and name not in known:
                    found[name] = None
    return list(found)


def summary_line(topic, result):
    """One sentence."""
    verdicts = [claim_row(claim, result)[-1] for claim in topic.claims]
    confirmed = sum(text == 'confirmed here' for text in verdicts)
    against = sum('other way' in text or text.startswith('not confirmed here: ') for text in verdicts)
    unmeasured = sum(text == 'not measured' for text in verdicts)
    text = f'{confirmed} of {len(verdicts)} findings confirmed here'
    if against:
        text += f', {against} the other way round'
    unseen = len(verdicts) - confirmed - against - unmeasured
    if unseen:
        text += f', {unseen} within the spread'
    if unmeasured:
        text += f', {unmeasured} not measured'
    return text + '.'
