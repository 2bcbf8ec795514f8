/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * On a CPU that a worker shares with the vCPU, a kick that wakes the worker stops the sender after
 * its first frame: the worker has one to move, asks for the next kick, and sleeps. The better a
 * device is, the less CPU time it has had, and the surer the scheduler lets it in at once. A worker
 * in the class SCHED_BATCH has its turn just as often, but waits for the sender to sleep or to have
 * had its time, and finds all that it sent until then: the wakes carry more frames, and both sides
 * pay for fewer.
 *
 * It is not for everything: with one frame on its way the sender sleeps at once in any case, and
 * where it does not (it has other things to do) that frame waits for its turn to end. So it is
 * tried, and kept while a wake carries a fifth more frames than without. What was tried in vain
 * is tried more and more rarely, until the load is another one (a stream's first windows and a
 * pause tell); what is kept is compared anew once in a while.
 */
#include "devices/virtio/net_sched.h"

#include "vmm/util.h"

#define WINDOW	     64u		 /* wakes */
#define SHORT	     UINT64_C(50000000)	 /* ns */
#define LONG	     UINT64_C(500000000) /* ns */
#define PAUSE	     UINT64_C(500000000) /* ns without a wake: what comes may be another load */
#define FEW	     8u			 /* frames in SHORT */
#define MAX_PATIENCE 64u
#define PROOF	     8u /* windows in which it has paid: it was not in vain */
#define TRUST	     64u
#define WORTH	     120u /* per cent: is kept */
#define OTHER	     130u /* per cent, of many windows: is another load */
#define LEAP	     250u /* per cent, of one */

/* A wake of `a` carries at least so many per cent of what one of `b` does. */
static bool carries(const struct net_sched_window *a, const struct net_sched_window *b,
		    unsigned percent)
{
	return 100 * a->frames * b->wakes >= percent * b->frames * a->wakes;
}

static bool differ(const struct net_sched_window *a, const struct net_sched_window *b,
		   unsigned percent)
{
	return carries(a, b, percent) || carries(b, a, percent);
}

/* What one window says is half chance where some wakes carry a burst and most a frame or two. */
static void add(struct net_sched_window *sum, const struct net_sched_window *now)
{
	sum->wakes = sum->wakes * 3 / 4 + now->wakes;
	sum->frames = sum->frames * 3 / 4 + now->frames;
}

static void judge(struct net_sched *s)
{
	bool pays;

	add(&s->tried, &s->now);
	pays = s->now.frames >= FEW && carries(&s->tried, &s->usual, WORTH) &&
	       carries(&s->now, &s->usual, 100);
	if (pays && ++s->windows < TRUST)
		return;
	if (s->windows >= PROOF) {
		s->patience = 1;
	} else {
		s->patience = MIN(2 * MAX(s->patience, 1u), MAX_PATIENCE);
		s->vain = s->usual;
	}
	s->batch = false;
	s->windows = 0;
}

static void consider(struct net_sched *s)
{
	if (s->now.frames < FEW)
		return;
	/* Another load may have another answer. */
	if (differ(&s->now, &s->usual, LEAP))
		s->usual = (struct net_sched_window){ 0 };
	add(&s->usual, &s->now);
	if (differ(&s->usual, &s->vain, OTHER))
		s->patience = 1;
	if (++s->windows < s->patience)
		return;
	s->batch = true;
	s->windows = 0;
	s->tried = (struct net_sched_window){ 0 };
}

/*
 * Where a wake carries a frame and no more, there is hardly anything to be saved, and each is held
 * up: such a trial is short.
 */
static bool is_over(const struct net_sched *s, uint64_t now)
{
	bool lone = 4 * s->usual.frames < 5 * s->usual.wakes;
	uint64_t passed = now - s->began;

	if (s->now.wakes >= WINDOW || passed >= LONG)
		return true;
	return passed >= SHORT && (s->now.frames < FEW || (s->batch && lone));
}

bool net_sched_step(struct net_sched *s, bool crowded, unsigned frames, uint64_t now)
{
	bool before = s->batch;

	if (!crowded || (s->last && now - s->last >= PAUSE)) {
		*s = (struct net_sched){ .last = now };
		return before;
	}
	s->last = now;
	if (!s->now.wakes)
		s->began = now;
	s->now.wakes++;
	s->now.frames += frames;
	if (!is_over(s, now))
		return false;
	if (s->batch)
		judge(s);
	else
		consider(s);
	s->now = (struct net_sched_window){ 0 };
	return s->batch != before;
}
