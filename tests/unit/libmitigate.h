/* SPDX-License-Identifier: GPL-2.0-or-later */
/* For tests of the mitigation policies: what happens, one row after the other, and what should be
 * answered. */
#ifndef WHELP_LIBMITIGATE_H
#define WHELP_LIBMITIGATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "devices/virtio/mitigate.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

/* A period of 150 us, a latency of 500; a kick costs 40, a timer is late by 5; 256 places; no spin.
 */
extern const struct mitigate_config usual_config;

/* What happens `later` ns after the row before, and the answer; `length`: until - now. */
struct row {
	enum mitigate_event event;
	unsigned packets;
	uint64_t later;
	enum mitigate_what what;
	uint64_t length;
	unsigned kick_at;
	bool preempted;
};

#define KICKED		    MITIGATE_KICKED, 0
#define EXPIRED		    MITIGATE_EXPIRED, 0
#define FOUND		    MITIGATE_FOUND, 0
#define MISSED		    MITIGATE_MISSED, 0
#define DRAINED(packets_)   MITIGATE_DRAINED, packets_
#define DRAIN		    .what = MITIGATE_DRAIN
#define SPIN(length_)	    .what = MITIGATE_SPIN, .length = (length_)
#define SLEEP		    .what = MITIGATE_SLEEP, .kick_at = 1
#define TIMED(length_, at_) .what = MITIGATE_SLEEP, .length = (length_), .kick_at = (at_)
struct table {
	struct mitigate_config config;
	struct mitigate_state state;
	uint64_t now;
};

/* With this configuration, but that policy; a second after the clock's beginning. */
void table_start(struct table *table, const struct mitigate_config *config,
		 enum mitigate_kind kind);

/* What is answered to that, `later` ns after the last step. */
struct mitigate_action table_step(struct table *table, const struct mitigate_sample *sample,
				  uint64_t later);

/* Fails at the first row with another answer. */
void table_run(struct table *table, const struct row *rows, size_t count);

#endif
