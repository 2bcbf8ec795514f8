/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The split ring's layout in memory (virtio 1.3, section 2.7), for the driver and for tests that
 * break it.
 */
#ifndef WHELP_TESTS_SPLIT_LAYOUT_H
#define WHELP_TESTS_SPLIT_LAYOUT_H

#include "vmm/le.h"

struct split_desc {
	le64 addr;
	le32 len;
	le16 flags;
	le16 next;
};

/* used_event follows the ring. */
struct split_avail {
	le16 flags;
	le16 idx;
	le16 ring[];
};

struct split_used_elem {
	le32 id;
	le32 len;
};

/* avail_event follows the ring. */
struct split_used {
	le16 flags;
	le16 idx;
	struct split_used_elem ring[];
};

static inline le16 *split_used_event(struct split_avail *avail, unsigned size)
{
	return &avail->ring[size];
}

static inline le16 *split_avail_event(struct split_used *used, unsigned size)
{
	return (le16 *)&used->ring[size];
}

#endif
