/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * When to look at a transmit ring, and when to let its driver kick: the policies of notification mitigation.
 *
 * They are pure: no clock, no file, no ring. A worker tells mitigate_step() what happened and what time it is,
 * and does what it answers until the next thing happens. All times are CLOCK_MONOTONIC or any other that does
 * not go back, in ns. A new policy is one file, and one row in the table of mitigate.c.
 */
#ifndef WHELP_MITIGATE_H
#define WHELP_MITIGATE_H

#include <stdbool.h>
#include <stdint.h>

enum mitigate_kind {
	MITIGATE_OFF,	   /* take what comes when it comes */
	MITIGATE_FIXED,	   /* a kick starts a timer, whose end takes all; a kick while it runs does so now */
	MITIGATE_LGUEST,   /* a kick takes all, then a timer of adaptive length starts */
	MITIGATE_WINDOW,   /* a kick comes when a window of packets is full, a timer bounds the wait */
	MITIGATE_ADAPTIVE, /* spin, timed sleep or kick, whichever the load makes cheapest */
	MITIGATE_KINDS,
};

/* Constant while a queue runs. */
struct mitigate_config {
	enum mitigate_kind kind;
	uint64_t period;    /* FIXED's timer and WINDOW's worst case; others: unused */
	uint64_t latency;   /* the longest that a packet may wait by intent: caps every timer */
	uint64_t poll_max;  /* the longest spin; 0: none */
	uint64_t kick_cost; /* measured: a kick and the wake-up of the worker */
	uint64_t overshoot; /* measured: how late a timer of this host wakes */
	unsigned ring;	    /* places in the ring */
};

enum mitigate_event {
	MITIGATE_KICKED,  /* a kick came, or the look after asking for one found packets */
	MITIGATE_EXPIRED, /* the timer did */
	MITIGATE_FOUND,	  /* a spin found packets */
	MITIGATE_MISSED,  /* a spin ended without */
	MITIGATE_DRAINED, /* the ring was emptied, as MITIGATE_DRAIN asked */
};

struct mitigate_sample {
	enum mitigate_event event;
	unsigned packets; /* DRAINED: taken since the last sample */
	bool preempted;	  /* FOUND, MISSED: another thread wanted this CPU meanwhile */
};

enum mitigate_what {
	MITIGATE_DRAIN, /* kicks off; take packets until there are none, then tell */
	MITIGATE_SPIN,	/* kicks off; look again and again, until `until` at most */
	MITIGATE_SLEEP, /* sleep until a kick or `until` */
};

struct mitigate_action {
	enum mitigate_what what;
	uint64_t until;	  /* SPIN, SLEEP: a time; 0: SLEEP has no timer */
	unsigned kick_at; /* SLEEP: ask for a kick once so many packets wait; 0: for none */
};

struct mitigate_state {
	/* What the policy at hand keeps; see its file. */
	union {
		struct {
			bool armed;
		} fixed;
		struct {
			uint64_t period;
			unsigned last; /* packets at the last expiry */
			bool armed, expired;
		} lguest;
		struct {
			unsigned size;
			uint64_t since; /* when the window was opened */
			bool expired;
		} window;
		struct {
			uint64_t period;
			uint64_t gap;	   /* smoothed time between packets */
			uint64_t last_end; /* of the last drain */
			unsigned useful;
			bool timed;
		} adaptive;
	};
	uint64_t spin;	     /* the spin allowed now; see mitigate.c */
	uint64_t spin_start; /* of the one under way */
	uint64_t slept_at;
};

/* The state of an idle queue with an empty ring: the first action is to sleep with kick_at 1. */
void mitigate_init(const struct mitigate_config *config, struct mitigate_state *state);

/* What to do now. Never fails; `state` is changed. */
struct mitigate_action mitigate_step(const struct mitigate_config *config,
				     struct mitigate_state *state,
				     const struct mitigate_sample *sample, uint64_t now);

#endif
