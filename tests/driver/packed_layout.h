/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The packed ring's layout in memory (virtio 1.3, section 2.8), for the driver and for tests that
 * break it.
 */
#ifndef WHELP_TESTS_PACKED_LAYOUT_H
#define WHELP_TESTS_PACKED_LAYOUT_H

#include "vmm/le.h"

struct packed_desc {
	le64 addr;
	le32 len;
	le16 id;
	le16 flags;
};

/* An event suppression structure (2.8.10); `position` is a slot with a wrap counter in bit 15. */
struct packed_event {
	le16 position;
	le16 flags;
};

#define PACKED_AVAIL 0x0080u /* in a descriptor's flags */
#define PACKED_USED  0x8000u

#define PACKED_EVENT_ENABLE  0u /* in an event structure's flags */
#define PACKED_EVENT_DISABLE 1u
#define PACKED_EVENT_DESC    2u

#endif
