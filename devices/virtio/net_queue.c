/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What both directions share. Used buffers are published, and the interrupt decided on, once a
 * batch; with coalescing (NOTF_COAL) the decision waits for enough of them, or for the timer.
 * Others ways are for comparing (--net intr=).
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "devices/virtio/net_pair.h"

/*
 * Of long batches in a row not each is timed: they are all alike, and two looks at the clock would
 * cost more than all else that is counted.
 */
#define LONG_BATCH   16u
#define TIMED_ONE_OF 8u

void net_queue_reset(struct net_queue *q)
{
	q->active = q->blocked = q->spinning = false;
	q->uninterrupted = q->deadline = q->wake = 0;
	q->used = q->moved = 0;
	q->expired = false;
	q->kicked_at = q->first_at = 0;
	q->untimed = 0;
	q->policy.ring = q->queue->vq.size;
	mitigate_init(&q->policy, &q->state);
}

bool net_queue_usable(const struct net_queue *q)
{
	/* One that is not may be brought to life at this moment, by another thread. */
	return q->taken && !q->queue->vq.fault;
}

void net_queue_activate(struct net_queue *q)
{
	if (!net_queue_usable(q))
		return;
	vq_kicks_disable(&q->queue->vq);
	q->wake = 0;
	q->active = true;
}

void net_queue_take_kicks(struct net_queue *q)
{
	uint64_t kicks;

	if (read(q->kick.fd, &kicks, sizeof(kicks)) == sizeof(kicks))
		net_count(&q->counters.kicks, kicks);
}

void net_queue_update_wire(struct net_queue *q)
{
	struct loop *loop = &q->worker->worker.loop;
	bool wanted = q->attached && !atomic_load(&q->pair->is_gone) && q->blocked == q->tx &&
		      (q->tx || net_queue_usable(q));

	if (wanted == q->watched)
		return;
	/* Not left in for nothing: epoll would still report errors, again and again. */
	if (wanted)
		loop_add(loop, &q->wire, q->tx ? EPOLLOUT : EPOLLIN);
	else
		loop_remove(loop, &q->wire);
	q->watched = wanted;
}

void net_queue_wire_failed(struct net_queue *q, const char *what, int err)
{
	struct net_pair *pair = q->pair;

	if (err != EBADFD) {
		log_limited(&pair->losses, "%s: %s %s: %s: the frame is lost", pair->device->name,
			    what, pair->backend->name, strerror(err));
		return;
	}
	if (!atomic_exchange(&pair->is_gone, true)) {
		log_warn("%s: %s is gone: the guest's NIC is cut off", pair->device->name,
			 pair->backend->name);
		pair->gone(pair);
		/* TX may be waiting for room, on another thread. */
		virtio_kick(pair->device, pair->tx.index);
	}
	net_queue_update_wire(q);
}

void net_queue_failed(struct net_queue *q)
{
	q->active = false;
	/* Nobody comes to a dead queue's times, which would be over for ever. */
	q->deadline = q->wake = 0;
	net_queue_update_wire(q);
	virtio_device_failed(q->pair->device, q->index, q->queue->vq.fault);
}

static void take(struct net_queue *q, const struct mitigate_action *action)
{
	q->active = action->what == MITIGATE_DRAIN;
	q->spinning = action->what == MITIGATE_SPIN;
	q->spin_until = action->until;
	q->wake = action->what == MITIGATE_SLEEP ? action->until : 0;
}

/*
 * Asks for the kick that the policy wants. False when it is too late: that many packets wait
 * already.
 */
static bool set_kick(struct net_queue *q, unsigned kick_at)
{
	struct virtqueue *vq = &q->queue->vq;

	if (!kick_at || !vq_kicks_enable_at(vq, kick_at))
		return true;
	vq_kicks_disable(vq);
	return false;
}

void net_queue_ask(struct net_queue *q, enum mitigate_event event, bool preempted)
{
	struct mitigate_sample sample = { event, q->moved, preempted };

	q->moved = 0;
	for (;;) {
		struct mitigate_action action;

		q->asked = loop_now();
		action = mitigate_step(&q->policy, &q->state, &sample, q->asked);
		take(q, &action);
		if (!q->tx || action.what != MITIGATE_SLEEP || set_kick(q, action.kick_at))
			return;
		sample = (struct mitigate_sample){ .event = MITIGATE_KICKED };
	}
}

/* The driver has no buffer left with the device: it may be waiting for one. */
static bool is_used_up(const struct net_queue *q)
{
	return !vq_is_ready(&q->queue->vq) && (q->tx || !q->pair->receiver.stock.count);
}

void net_queue_decide_interrupt(struct net_queue *q)
{
	bool wanted = vq_needs_interrupt(&q->queue->vq);

	q->uninterrupted = q->deadline = 0;
	if (q->pair->tuning->intr == NET_INTR_EMPTY && is_used_up(q))
		wanted = true;
	net_count(wanted ? &q->counters.interrupts : &q->counters.unwanted, 1);
	if (!wanted)
		return;
	virtio_queue_interrupt(q->pair->device, q->index);
}

/*
 * The decision may be put off: until there are enough used buffers, or the first has waited enough.
 */
static bool may_wait(struct net_queue *q)
{
	if (!q->coalescing.max_usecs || q->uninterrupted >= q->coalescing.max_packets)
		return false;
	if (!q->deadline)
		q->deadline = loop_now() + q->coalescing.max_usecs * 1000ull;
	return true;
}

static void show_used(struct net_queue *q)
{
	vq_publish(&q->queue->vq);
	if (q->first_at) {
		histogram_add(&q->counters.tap_to_used, net_clock() - q->first_at);
		q->first_at = 0;
	}
	q->uninterrupted += q->used;
	q->used = 0;
	if (!may_wait(q))
		net_queue_decide_interrupt(q);
}

void net_queue_used(struct net_queue *q)
{
	q->used++;
	q->moved++;
	if (q->pair->tuning->intr == NET_INTR_PACKET)
		show_used(q);
}

void net_queue_first(struct net_queue *q)
{
	if (q->untimed && !q->kicked_at) {
		q->untimed--;
		return;
	}
	q->first_at = net_clock();
	if (!q->kicked_at)
		return;
	histogram_add(&q->counters.kick_to_tap, q->first_at - q->kicked_at);
	q->kicked_at = 0;
}

void net_queue_finish_batch(struct net_queue *q, const struct net_moved *moved)
{
	struct net_counters *c = &q->counters;
	unsigned frames = moved->frames;

	if (q->expired)
		net_count(frames ? &c->timers_useful : &c->timers_empty, 1);
	q->expired = false;
	if (!frames)
		return;
	q->worker->frames += frames;
	net_count(&c->packets, moved->good);
	net_count(&c->bytes, moved->bytes - (uint64_t)moved->good * q->pair->mode.header);
	net_count(&c->batches, 1);
	histogram_add(&c->batch_sizes, frames);
	if (frames < LONG_BATCH)
		q->untimed = 0;
	else if (!q->untimed)
		q->untimed = TIMED_ONE_OF - 1;
	if (q->used)
		show_used(q);
	q->first_at = 0;
}

void net_queue_drop(struct net_queue *q, enum net_drop why)
{
	net_count(&q->counters.dropped, 1);
	net_count(&q->counters.drops[why], 1);
}
