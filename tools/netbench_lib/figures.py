# SPDX-License-Identifier: GPL-2.0-or-later
"""A run's figures, from what was seen at its window's ends; and statistics over runs. docs/netbench.md defines them.

Every rate is taken over the time between the two readings of its own source, so that none depends on how long the
others took to read. Counts per 1,000 packets are ratios of such rates.
"""

import re
import statistics
import typing

import benchlib
from netbench_lib import probes, traffic

KB = 1024


class Column(typing.NamedTuple):
    name: str
    title: str
    unit: str
    form: str


# In the order of the tables. The figure itself comes before them.
COLUMNS = (
    Column('sent', 'sent', 'Mbit/s', '.0f'),
    Column('latency', 'mean round trip', 'us', '.1f'),
    Column('ping_min', 'min', 'ms', '.3f'),
    Column('ping_max', 'max', 'ms', '.3f'),
    Column('ping_mdev', 'mdev', 'ms', '.3f'),
    Column('ping_rate', 'pings', '1/s', '.0f'),
    Column('ping_lost', 'lost', '', '.0f'),
    Column('sd_host', 'SD host', 'us', '.3f'),
    Column('sd_vmm', 'SD VMM', 'us', '.3f'),
    Column('sd_guest', 'SD guest', 'us', '.3f'),
    Column('sd_guest2', 'SD 2nd guest', 'us', '.3f'),
    Column('cpu_host', 'CPU host', '%', '.0f'),
    Column('cpu_vmm', 'CPU VMM', '%', '.0f'),
    Column('cpu_softirq', 'softirq', '%', '.0f'),
    Column('cpu_guest', 'CPU guest', '%', '.0f'),
    Column('cpu_guest2', 'CPU 2nd guest', '%', '.0f'),
    Column('packets', 'packets', '1/s', '.0f'),
    Column('packets_sent', 'sent by guests', '1/s', '.0f'),
    Column('packet_bytes', 'bytes', 'each', '.0f'),
    Column('kicks', 'kicks', '/1000', '.1f'),
    Column('interrupts_sent', 'interrupts sent', '/1000', '.1f'),
    Column('irq_rx', 'RX interrupts', '/1000', '.1f'),
    Column('irq_tx', 'TX interrupts', '/1000', '.1f'),
    Column('exits', 'exits', '/1000', '.1f'),
    Column('retrans', 'retransmitted', '/1000', '.2f'),
    Column('drops', 'dropped', '/1000', '.2f'),
    Column('overlap', 'overlap', '%', '.1f'),
)
BY_NAME = {column.name: column for column in COLUMNS}
# Of the protocols' counters, those that tables show; the JSON and the CSV have all that grew.
TELLING = ('TcpRetransSegs', 'TcpExtTCPTimeouts', 'TcpExtTCPLostRetransmit', 'TcpExtTCPFastRetrans',
           'TcpExtDelayedACKs', 'TcpExtDelayedACKLost', 'TcpExtTCPPureAcks', 'TcpExtTCPHPHits', 'TcpExtTCPHPAcks',
           'TcpExtTCPRcvCoalesce', 'TcpExtTCPAutoCorking', 'TcpExtTCPToZeroWindowAdv', 'TcpExtTCPFromZeroWindowAdv',
           'TcpExtTCPWantZeroWindowAdv', 'TcpExtTCPBacklogCoalesce', 'UdpInErrors', 'UdpRcvbufErrors', 'UdpSndbufErrors')


def _received_packets(case, host, guests, taps, nics):
    """Packets per second at the receiver's end of the wire."""
    if case['way'] == 'guest-guest':
        seconds, sums = probes.traffic_of(*guests[1], [nics[1]])
    else:
        seconds, sums = probes.traffic_of(host[0]['files'], host[1]['files'], taps)
    return sums.get('rx_packets', 0) / seconds


def _figure(case, result, datagrams, packets):
    """(figure, units of work per second, more metrics) of a run. datagrams and packets: what arrived per second."""
    test = traffic.TESTS[case['test']]
    total = sum(session['rate'] for session in result['sessions'])
    if test.kind == 'ping':
        times = traffic.ping_times(result)
        rate = times['received'] / (result['end'] - result['begin'])
        return times['avg'], rate, {'ping_min': times['min'], 'ping_max': times['max'], 'ping_mdev': times['mdev'],
                                    'ping_rate': rate, 'ping_lost': times['sent'] - times['received']}
    if test.kind == 'packets':
        return packets, packets, {}
    if test.kind == 'rr':
        return total, total, {'latency': 1e6 * len(result['sessions']) / total if total else 0.0}
    more = {}
    if test.udp:
        more['sent'] = total
        total = datagrams * case['size'] * 8 / 1e6
    return total, total * 1e6 / 8 / KB, more


def _cpu(host, guests, work):
    """(metrics, {thread: percent}) of CPU time and what it was spent on."""
    before, after = host[0]['files'], host[1]['files']
    cpus, softirq = probes.busy(before, after)
    seconds = after['/proc/stat'][0] - before['/proc/stat'][0]
    used = {'host': max(0.0, cpus - (host[1]['self'] - host[0]['self']) / seconds)}
    seconds = host[1]['threads_time'] - host[0]['threads_time']
    threads = {name: 100 * busy / seconds
               for name, busy in probes.thread_differences(host[0]['threads'], host[1]['threads']).items()}
    if guests:
        used['vmm'] = sum(threads.values()) / 100
    for name, pair in zip(('guest', 'guest2'), guests):
        used[name], _ = probes.busy(*pair)
    metrics = {f'cpu_{name}': 100 * cpus for name, cpus in used.items()}
    if work > 0:
        metrics.update({f'sd_{name}': 1e6 * cpus / work for name, cpus in used.items()})
    return {**metrics, 'cpu_softirq': 100 * softirq}, threads


def _interrupts(guests, virtio, packet_rate):
    """Interrupts of the NICs in their guests, per 1,000 packets, for received packets and for sent ones."""
    rates = {'irq_rx': 0.0, 'irq_tx': 0.0}
    for (before, after), device in zip(guests, virtio):
        seconds, grown = probes.delta(before, after, '/proc/interrupts', probes.interrupt_counters)
        for name, count in grown.items():
            kind = re.fullmatch(rf'{device}-(input|output|virtqueues|req).*', name)
            if kind:
                rates['irq_tx' if kind.group(1) == 'output' else 'irq_rx'] += count / seconds
    return {name: 1000 * rate / packet_rate for name, rate in rates.items()}


def _exits(host, packet_rate):
    seconds = host[1]['kvm_time'] - host[0]['kvm_time']
    grown = probes.grown(host[0]['kvm'], host[1]['kvm'])
    return {name: 1000 * count / seconds / packet_rate for name, count in grown.items()
            if count > 0 and re.search('exits|injections|halt_(attempted|successful|wakeup)', name)}


def _per_packet(host, guests, taps, virtio):
    """(metrics, exits by cause): packets, and what there was of each other thing per 1,000 of them."""
    seconds, sums = probes.traffic_of(host[0]['files'], host[1]['files'], taps or ['lo'])
    packets = sums.get('rx_packets', 0) + sums.get('tx_packets', 0)
    metrics, exits = {}, {}
    if packets:
        metrics.update(packets=packets / seconds, packet_bytes=(sums['rx_bytes'] + sums['tx_bytes']) / packets,
                       drops=1000 * (sums['rx_drop'] + sums['tx_drop']) / packets)
        if guests:
            # What a tap receives, its guest has sent.
            metrics['packets_sent'] = sums['rx_packets'] / seconds
            metrics.update(_interrupts(guests, virtio, packets / seconds))
        exits = _exits(host, packets / seconds)
        if 'exits' in exits:
            metrics['exits'] = exits.pop('exits')
    for name, counter in (('kicks', 'kicks'), ('interrupts_sent', 'interrupts')):
        if host[1]['whelp']:
            value = benchlib.per_thousand(host[0]['whelp'], host[1]['whelp'], counter)
            if value is not None:
                metrics[name] = value
    return metrics, exits


def _retransmitted(protocols):
    """Segments sent again, per 1,000 sent, by all sides."""
    sent, again = (sum(grown.get(name, 0) / seconds for seconds, grown in protocols.values())
                   for name in ('TcpOutSegs', 'TcpRetransSegs'))
    return {'retrans': 1000 * again / sent} if sent else {}


def of_run(case, result, host, guests, taps=(), nics=(), virtio=()):
    """A run as the journal has it.

    result: traffic.parse's; host: both of Machine.look's; guests: both snapshots of each guest on the way, the client's
    first. taps: the host's ends of the NICs nics, whose devices in the guests are virtio.
    """
    protocols = {'host': probes.protocols(host[0]['files'], host[1]['files'])}
    for name, pair in zip(('guest', 'guest2'), guests):
        protocols[name] = probes.protocols(*pair)
    receiver = {'host-guest': 'guest', 'guest-host': 'host', 'guest-guest': 'guest2'}[case['way']]
    seconds, grown = protocols.get(receiver, protocols['host'])
    packets = _received_packets(case, host, guests, taps, nics) if case['test'] == 'PKTGEN' else 0.0
    figure, work, metrics = _figure(case, result, grown.get('UdpInDatagrams', 0) / seconds, packets)
    # Of UDP everything may be lost, where a flood leaves the receiver no time.
    if work <= 0 and not traffic.TESTS[case['test']].udp:
        raise benchlib.Failed('nothing came through')
    cpu, threads = _cpu(host, guests, work)
    per_packet, exits = _per_packet(host, guests, taps, virtio)
    metrics.update(**cpu, **per_packet, **_retransmitted(protocols), overlap=traffic.overlap(result))
    return {
        'figure': round(figure, 4), 'window': round(result['end'] - result['begin'], 6),
        'metrics': {name: round(value, 5) for name, value in metrics.items()},
        'threads': {name: round(value, 3) for name, value in sorted(threads.items())},
        'exit_causes': {name: round(value, 3) for name, value in sorted(exits.items())},
        'protocols': {name: {counter: round(value / seconds, 3) for counter, value in sorted(grown.items())}
                      for name, (seconds, grown) in protocols.items()},
        'sessions': [[round(session['first'], 3), round(session['last'], 3)] for session in result['sessions']],
    }


# ---- over runs -------------------------------------------------------------------------------------


def summary(values):
    """min, avg, median, max, stddev and number."""
    found = benchlib.summary(values)
    return {'n': found['n'], 'min': found['min'], 'avg': statistics.mean(values), 'median': found['median'],
            'max': found['max'], 'stddev': found['stddev']}
