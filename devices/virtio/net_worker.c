/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The worker sleeps in its loop on a few fds: a kick for each queue, the back end's, and its
 * queues' timer. Woken, it takes its queues in turn, a bounded batch each, until none has work,
 * with a look at the other fds once in a while (a driver can keep a ring full for ever, and timers
 * and worker_call() shall not wait for that).
 *
 * A queue that was found empty meanwhile is looked at again in each round, with kicks off. Only
 * when a whole round moved nothing are the policies asked how to wait: by spinning, which looks at
 * all rings and fds, or by sleeping until a kick or a time. A worker that spins for one queue takes
 * the kicks off the others, too.
 */
#include "devices/virtio/net_worker.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>

#include "devices/virtio/net_pair.h"
#include "vmm/util.h"

#define BATCH_ROUNDS  16u
#define NS_PER_S      1000000000ull
#define LOCK_PATIENCE 1000000ull /* ns between looks at who waits for us */

/* ---- the lock that none has unless it is asked for ---- */

/* gcc 12's TSan takes no notice of pthread_mutex_clocklock(), and complains of the unlocking. */
#ifdef __SANITIZE_THREAD__
#define LOCK_CLOCK		CLOCK_REALTIME
#define lock_until(lock, until) pthread_mutex_timedlock(lock, until)
#else
#define LOCK_CLOCK		CLOCK_MONOTONIC
#define lock_until(lock, until) pthread_mutex_clocklock(lock, LOCK_CLOCK, until)
#endif

/* True when it has the lock, false when time is up. */
static bool try_lock(pthread_mutex_t *lock)
{
	struct timespec until;
	uint64_t at;

	clock_gettime(LOCK_CLOCK, &until);
	at = (uint64_t)until.tv_nsec + LOCK_PATIENCE;
	until.tv_sec += (time_t)(at / NS_PER_S);
	until.tv_nsec = (long)(at % NS_PER_S);
	return !lock_until(lock, &until);
}

void net_worker_enter_lock(struct net_worker *w)
{
	if (!w->lock)
		return;
	while (!w->locked && !worker_awaited(&w->worker))
		w->locked = try_lock(w->lock);
}

void net_worker_leave_lock(struct net_worker *w)
{
	if (w->locked)
		pthread_mutex_unlock(w->lock);
	w->locked = false;
}

/* ---- rounds ---- */

static bool can_move(const struct net_queue *q)
{
	return q->active && !q->blocked && (q->tx || q->attached);
}

static bool run_batch(struct net_worker *w, struct net_queue *q)
{
	bool more;

	net_worker_enter_lock(w);
	more = q->tx ? net_queue_transmit(q) : net_queue_receive(q);
	net_worker_leave_lock(w);
	return more;
}

static bool run_round(struct net_worker *w)
{
	bool more = false;

	for (unsigned i = 0; i < w->count; i++)
		if (can_move(w->queues[i]))
			more |= run_batch(w, w->queues[i]);
	return more;
}

static bool has_work(const struct net_worker *w)
{
	for (unsigned i = 0; i < w->count; i++)
		if (can_move(w->queues[i]))
			return true;
	return false;
}

/* ---- waiting ---- */

static bool sleeps_for_a_kick(const struct net_queue *q)
{
	return q->tx && net_queue_usable(q) && !q->active && !q->spinning && !q->wake;
}

/* A ring whose driver was told not to kick, though its queue sleeps. */
static bool is_watched(const struct net_queue *q)
{
	return q->spinning || sleeps_for_a_kick(q);
}

static bool ring_has_work(const struct net_worker *w)
{
	for (unsigned i = 0; i < w->count; i++) {
		const struct net_queue *q = w->queues[i];

		if (q->tx && is_watched(q) && vq_is_ready(&q->queue->vq))
			return true;
	}
	return false;
}

static uint64_t preemptions(void)
{
	struct rusage usage;

	return getrusage(RUSAGE_THREAD, &usage) ? 0 : (uint64_t)usage.ru_nivcsw;
}

/* True when there is something to do. */
static bool look_until(struct net_worker *w, uint64_t until)
{
	do {
		if (ring_has_work(w))
			return true;
		/* Its callbacks only mark work, and set the timer: we are `running`. */
		if (loop_poll(&w->worker.loop) && (has_work(w) || worker_awaited(&w->worker)))
			return true;
	} while (loop_now() < until);
	return false;
}

/* Ends a watch of `ns` by `found`: true, or false when time is up. */
static void end_watch(struct net_queue *q, bool found, bool preempted, uint64_t ns)
{
	if (q->spinning) {
		net_count(found ? &q->counters.polls_hit : &q->counters.polls_missed, 1);
		net_count(&q->counters.poll_ns, ns);
		net_queue_ask(q, found ? MITIGATE_FOUND : MITIGATE_MISSED, preempted);
	} else if (sleeps_for_a_kick(q) && vq_kicks_enable(&q->queue->vq)) {
		vq_kicks_disable(&q->queue->vq);
		net_queue_ask(q, MITIGATE_KICKED, false);
	}
}

static void spin(struct net_worker *w, uint64_t until)
{
	uint64_t before = preemptions(), start = loop_now();
	bool found, preempted;

	for (unsigned i = 0; i < w->count; i++)
		if (sleeps_for_a_kick(w->queues[i]))
			vq_kicks_withdraw(&w->queues[i]->queue->vq);
	/* For those that sleep: a spin may be longer. */
	net_worker_update_timer(w);
	found = look_until(w, until);
	preempted = preemptions() != before;
	for (unsigned i = 0; i < w->count; i++)
		end_watch(w->queues[i], found, preempted, loop_now() - start);
}

/* There is work, so nobody spins: queues that were to are looked at in the rounds instead. */
static void forgo_spins(struct net_worker *w)
{
	for (unsigned i = 0; i < w->count; i++)
		if (w->queues[i]->spinning)
			net_queue_ask(w->queues[i], MITIGATE_FOUND, false);
}

/* No queue had anything. True when there is more to do after all. */
static bool settle(struct net_worker *w)
{
	uint64_t until = 0;

	for (unsigned i = 0; i < w->count; i++) {
		struct net_queue *q = w->queues[i];

		if (!can_move(q))
			continue;
		q->active = false;
		if (net_queue_usable(q) && (q->tx || q->policy.poll_max))
			net_queue_ask(q, MITIGATE_DRAINED, false);
		if (q->spinning)
			until = MAX(until, q->spin_until);
	}
	if (has_work(w))
		forgo_spins(w);
	else if (until)
		spin(w, until);
	return has_work(w);
}

/* True when all is done, false when the loop goes on with the rest. */
static bool run_rounds(struct net_worker *w)
{
	for (unsigned i = 0; !loop_stopping(&w->worker.loop); i++) {
		if (i == BATCH_ROUNDS) {
			loop_again(&w->worker.loop, &w->more);
			return false;
		}
		if (!run_round(w) && !settle(w))
			break;
	}
	return true;
}

static bool is_crowded(const struct net_worker *w, uint64_t now)
{
	for (unsigned i = 0; i < w->count; i++)
		if (mitigate_is_crowded(&w->queues[i]->policy, &w->queues[i]->state, now))
			return true;
	return false;
}

/* It sleeps next: what it does to others when it is woken may have to change. */
static void learn_from_wake(struct net_worker *w)
{
	const struct net_tuning *t = w->tuning;

	if (t->sched == NET_SCHED_AUTO && t->mitigation == MITIGATE_ADAPTIVE) {
		uint64_t now = loop_now();

		if (net_sched_step(&w->sched, is_crowded(w, now), w->frames, now))
			worker_set_batch(w->sched.batch);
	}
	w->frames = 0;
}

void net_worker_run(struct net_worker *w)
{
	if (!w->running) {
		w->running = true;
		if (run_rounds(w))
			learn_from_wake(w);
		w->running = false;
	}
	/* Also for a callback in a spin, which may outlast what a queue waits for now. */
	net_worker_update_timer(w);
}

static void run_on(struct loop_source *source, uint32_t events)
{
	(void)events;
	net_worker_run(container_of(source, struct net_worker, more));
}

/* ---- time ---- */

void net_worker_update_timer(struct net_worker *w)
{
	uint64_t first = 0;

	for (unsigned i = 0; i < w->count; i++) {
		const uint64_t times[] = { w->queues[i]->deadline, w->queues[i]->wake };

		for (unsigned k = 0; k < ARRAY_SIZE(times); k++)
			if (times[k] && (!first || times[k] < first))
				first = times[k];
	}
	loop_set_timer(&w->worker.loop, &w->timer, first);
}

static void expire(struct net_queue *q, uint64_t now)
{
	if (!net_queue_usable(q))
		return;
	if (q->deadline && q->deadline <= now) {
		net_count(&q->counters.timers_interrupt, 1);
		net_queue_decide_interrupt(q);
	}
	if (!q->wake || q->wake > now)
		return;
	q->wake = 0;
	vq_kicks_withdraw(&q->queue->vq);
	net_queue_ask(q, MITIGATE_EXPIRED, false);
	/* What it was good for, the next batch tells. */
	q->expired = q->active;
	if (!q->active)
		net_count(&q->counters.timers_empty, 1);
}

static void timer_ready(struct loop_source *source, uint32_t events)
{
	struct net_worker *w = container_of(source, struct net_worker, timer);
	uint64_t now = loop_now();

	(void)events;
	for (unsigned i = 0; i < w->count; i++)
		expire(w->queues[i], now);
	net_worker_run(w);
}

/* ---- life ---- */

/* First thing in the worker's thread: buffers may have been made available before DRIVER_OK. */
static void begin(struct worker *worker)
{
	struct net_worker *w = container_of(worker, struct net_worker, worker);

	if (w->tuning->sched == NET_SCHED_BATCH)
		worker_set_batch(true);
	for (unsigned i = 0; i < w->count; i++)
		net_queue_activate(w->queues[i]);
	net_worker_run(w);
}

int net_worker_open(struct net_worker *w, const char *name, const struct net_tuning *tuning,
		    pthread_mutex_t *lock)
{
	w->count = 0;
	w->tuning = tuning;
	w->lock = tuning->lock == NET_LOCK_NONE ? NULL : lock;
	w->locked = w->running = false;
	w->frames = 0;
	w->sched = (struct net_sched){ 0 };
	w->timer = (struct loop_source){ .fd = -1, .ready = timer_ready };
	w->more = (struct loop_source){ .fd = -1, .ready = run_on };
	w->open = true;
	return worker_init(&w->worker, name, begin);
}

int net_worker_add(struct net_worker *w, struct net_queue *q)
{
	w->queues[w->count++] = q;
	return net_queue_usable(q) ? loop_add(&w->worker.loop, &q->kick, EPOLLIN) : 0;
}

void net_worker_wake(struct net_worker *w)
{
	loop_again(&w->worker.loop, &w->more);
}

int net_worker_start(struct net_worker *w)
{
	return w->count ? worker_start(&w->worker) : 0;
}

void net_worker_close(struct net_worker *w)
{
	if (w->open)
		worker_fini(&w->worker);
	w->open = false;
	w->count = 0;
}
