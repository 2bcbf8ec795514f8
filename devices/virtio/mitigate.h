/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * When to look at a transmit ring, and when to let its driver kick: the policies of notification
 * mitigation.
 *
 * They are pure: no clock, no file, no ring. A worker tells mitigate_step() what happened and what
 * time it is, and does what it answers until the next thing happens. All times are CLOCK_MONOTONIC
 * or any other that does not go back, in ns. A new policy is one file, and one row in the table of
 * mitigate.c: see docs/policies.md.
 */
#ifndef WHELP_MITIGATE_H
#define WHELP_MITIGATE_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/net_tuning.h"

/* Constant while a queue runs. */
struct mitigate_config {
	enum mitigate_kind kind;
	uint64_t period;   /* FIXED's timer and WINDOW's worst case; others: unused */
	uint64_t latency;  /* the longest wait by intent: caps every timer; 0: no timers */
	uint64_t poll_max; /* the longest spin; 0: none */
	/*
	 * Measured: what a kick and the wake-up of the worker cost, the wait of the packet in the
	 * meantime included. That is what a spin that finds a packet saves, so it is what poll_max
	 * should be if nobody wants otherwise.
	 */
	uint64_t kick_cost;
	uint64_t overshoot; /* measured: how late a timer of this host wakes */
	unsigned ring;	    /* places in the ring */
	bool crowded;	    /* known beforehand: others want the worker's CPU */
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
	uint64_t until; /* SPIN, SLEEP: a time; 0: SLEEP has no timer */
	/*
	 * SLEEP: ask for a kick once so many packets wait; 0: for none. Other than 1 only with a
	 * timer: what cannot ask for a kick after several (a split ring without event indices) asks
	 * for none, and relies on that.
	 */
	unsigned kick_at;
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
			uint64_t gap;	   /* smoothed time between packets */
			uint64_t since;	   /* when the window was opened */
			unsigned size;	   /* of the window, packets */
			unsigned hold;	   /* windows of one packet to come before a larger one */
			unsigned patience; /* what hold starts from after the timer fired */
			bool expired;
		} window;
		struct {
			uint64_t period;
			uint64_t gap;	   /* smoothed time between packets */
			uint64_t since;	   /* when the last drain with packets ended */
			unsigned packets;  /* taken by the last drain */
			unsigned singles;  /* drains of one packet in a row */
			unsigned patience; /* how many of them until the timer is tried */
			bool expired, trying;
		} adaptive;
	};
	uint64_t spin;	     /* the longest spin now: 0 to poll_max */
	uint64_t idle_since; /* when the ring was emptied last */
	uint64_t hold_until; /* no spin before: others want this CPU */
	unsigned kick_at;    /* of the last action, if that was to sleep; else 0 */
	bool timed_out;	     /* the drain at hand is a timer's */
	bool long_idle;	     /* the last sleep was too long for a spin */
};

/* The policy's name in options and reports; NULL if there is no such kind. */
const char *mitigate_name(enum mitigate_kind kind);

/* Whether others want the worker's CPU: it is known, or a spin was in somebody's way just now. */
bool mitigate_is_crowded(const struct mitigate_config *config, const struct mitigate_state *state,
			 uint64_t now);

/* The state of an idle queue with an empty ring: the first action is to sleep with kick_at 1. */
void mitigate_init(const struct mitigate_config *config, struct mitigate_state *state);

/* What to do now. Never fails; `state` is changed. */
struct mitigate_action mitigate_step(const struct mitigate_config *config,
				     struct mitigate_state *state,
				     const struct mitigate_sample *sample, uint64_t now);

#endif
