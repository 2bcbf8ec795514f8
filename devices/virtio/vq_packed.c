/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The packed ring (virtio 1.3, section 2.8): one ring of descriptors, which the driver makes
 * available and the device overwrites with used ones, each side going around it by itself. Two bits
 * of a descriptor's flags tell whose it is, compared with a wrap counter that flips on each lap.
 * Any size up to 2^15.
 *
 * A chain takes consecutive slots and comes back as one used descriptor at the device's own
 * position, which then skips as many slots. A batch becomes visible by its first descriptor: the
 * driver looks at used descriptors in order, so the others may be complete before it.
 *
 * Ordering, with the partner on the driver's side:
 * - a descriptor's flags are loaded with acquire; the driver stores those of a chain's first
 *   descriptor last, with release (2.8.13.2).
 * - the first used descriptor's flags of a batch are stored with release; the driver loads them
 *   before it reads the rest (2.8.14).
 * - between storing those flags and reading the driver's event structure stands a full fence; the
 *   driver has one between writing that structure and looking at the descriptor again.
 * - between writing our event structure and looking at the next descriptor stands a full fence; the
 *   driver has one between making a descriptor available and reading our structure.
 */
#include <errno.h>
#include <stdatomic.h>

#include "devices/virtio/vq_internal.h"
#include "vmm/le.h"
#include "vmm/util.h"

struct packed_desc_le {
	le64 addr;
	le32 len;
	le16 id;
	le16 flags;
};

/* The event suppression structures (2.8.10). */
struct packed_event_le {
	le16 off_wrap; /* descriptor's slot, and its wrap counter in bit 15 */
	le16 flags;
};

_Static_assert(sizeof(struct packed_desc_le) == 16, "2.8.13");
_Static_assert(sizeof(struct packed_event_le) == 4, "2.8.14");

#define FLAG_AVAIL (1u << VRING_PACKED_DESC_F_AVAIL)
#define FLAG_USED  (1u << VRING_PACKED_DESC_F_USED)

/* Moves a position on by `slots`, flipping the wrap counter at the ring's end. */
static void advance(const struct virtqueue *vq, uint16_t *at, bool *wrap, unsigned slots)
{
	unsigned next = *at + slots;

	if (next >= vq->size) {
		next -= vq->size;
		*wrap = !*wrap;
	}
	*at = (uint16_t)next;
}

static bool is_available(uint16_t flags, bool wrap)
{
	bool avail = flags & FLAG_AVAIL, used = flags & FLAG_USED;

	return avail == wrap && used != wrap;
}

static int packed_activate(struct virtqueue *vq)
{
	struct vq_packed *p = &vq->packed;

	if (vq->desc_gpa % 16 || vq->driver_gpa % 4 || vq->device_gpa % 4) {
		vq_kill(vq, "a part of the ring is misaligned");
		return -EINVAL;
	}
	*p = (struct vq_packed){
		.desc = mem_ptr(vq->mem, vq->desc_gpa, (uint64_t)vq->size * sizeof(*p->desc)),
		.driver_event = mem_ptr(vq->mem, vq->driver_gpa, sizeof(*p->driver_event)),
		.device_event = mem_ptr(vq->mem, vq->device_gpa, sizeof(*p->device_event)),
		/* Both counters start at 1 (2.8.1). */
		.avail_wrap = true,
		.used_wrap = true,
	};
	if (!p->desc || !p->driver_event || !p->device_event) {
		vq_kill(vq, "a part of the ring is outside of guest memory");
		return -EFAULT;
	}
	return 0;
}

/* The fields of a descriptor whose flags are in hand already. */
static struct vq_descriptor read_descriptor(const struct packed_desc_le *from, uint16_t flags)
{
	return (struct vq_descriptor){
		.addr = le64_load_relaxed(&from->addr),
		.len = le32_load_relaxed(&from->len),
		.flags = flags,
	};
}

/* Every element of the table belongs to the chain; of its flags only WRITE counts (2.8.8). */
static int walk_indirect(struct virtqueue *vq, struct vq_chain *chain, struct vq_descriptor d)
{
	const struct packed_desc_le *table = vq_indirect_table(vq, d);
	unsigned count = d.len / sizeof(*table);
	int err = table ? 0 : -EPROTO;

	for (unsigned i = 0; i < count && !err; i++) {
		uint16_t flags = le16_load_relaxed(&table[i].flags) & VRING_DESC_F_WRITE;

		err = vq_add_buffer(vq, chain, read_descriptor(&table[i], flags));
	}
	return err;
}

static int packed_pop(struct virtqueue *vq, struct vq_chain *chain)
{
	struct vq_packed *p = &vq->packed;
	uint16_t at = p->next_avail;
	bool wrap = p->avail_wrap;
	uint16_t flags;
	int err;

	/* Partner: the driver's release of the first descriptor's flags. */
	flags = le16_load_acquire(&p->desc[at].flags);
	if (!is_available(flags, wrap))
		return 0;
	vq_start_chain(chain);
	do {
		struct vq_descriptor d;

		if (chain->slots == vq->size)
			return vq_kill(vq, "a chain is longer than the queue");
		if (chain->slots)
			flags = le16_load_relaxed(&p->desc[at].flags);
		d = read_descriptor(&p->desc[at], flags);
		/* The buffer id is in the last descriptor of a chain (2.8.6). */
		chain->id = le16_load_relaxed(&p->desc[at].id);
		chain->slots++;
		if (!(flags & VRING_DESC_F_INDIRECT))
			err = vq_add_buffer(vq, chain, d);
		else if (flags & VRING_DESC_F_NEXT || chain->slots > 1)
			err = vq_kill(vq, "an indirect descriptor is part of a chain");
		else
			err = walk_indirect(vq, chain, d);
		if (err)
			return err;
		advance(vq, &at, &wrap, 1);
	} while (flags & VRING_DESC_F_NEXT);
	chain->descriptors = chain->slots;
	p->next_avail = at;
	p->avail_wrap = wrap;
	return 1;
}

static void packed_unpop(struct virtqueue *vq, const struct vq_chain *chain)
{
	struct vq_packed *p = &vq->packed;

	if (p->next_avail < chain->slots) {
		p->next_avail = (uint16_t)(p->next_avail + vq->size);
		p->avail_wrap = !p->avail_wrap;
	}
	p->next_avail = (uint16_t)(p->next_avail - chain->slots);
}

static void packed_push(struct virtqueue *vq, const struct vq_chain *chain, uint32_t written)
{
	struct vq_packed *p = &vq->packed;
	struct packed_desc_le *desc = &p->desc[p->next_used];
	uint16_t flags = (uint16_t)((p->used_wrap ? FLAG_AVAIL | FLAG_USED : 0) |
				    (written ? VRING_DESC_F_WRITE : 0));

	le16_store_relaxed(&desc->id, chain->id);
	le32_store_relaxed(&desc->len, written);
	if (p->staged) {
		le16_store_relaxed(&desc->flags, flags);
	} else {
		p->first = desc;
		p->first_flags = flags;
	}
	p->staged += chain->slots;
	advance(vq, &p->next_used, &p->used_wrap, chain->slots);
}

static void packed_publish(struct virtqueue *vq)
{
	struct vq_packed *p = &vq->packed;

	if (!p->staged)
		return;
	/* Partner: the driver's acquire of the flags it waits for. */
	le16_store_release(&p->first->flags, p->first_flags);
	p->undecided += p->staged;
	p->staged = 0;
}

static bool packed_holds(const struct virtqueue *vq, unsigned places)
{
	uint16_t at = vq->packed.next_avail;
	bool wrap = vq->packed.avail_wrap;

	advance(vq, &at, &wrap, places - 1);
	return is_available(le16_load_relaxed(&vq->packed.desc[at].flags), wrap);
}

static bool packed_kicks_enable(struct virtqueue *vq, unsigned places)
{
	struct vq_packed *p = &vq->packed;
	uint16_t at = p->next_avail, off_wrap;
	bool wrap = p->avail_wrap;

	advance(vq, &at, &wrap, places - 1);
	off_wrap = (uint16_t)(at | wrap << 15);
	if (vq->event_idx) {
		le16_store_relaxed(&p->device_event->off_wrap, off_wrap);
		/* The driver must not see the new flags with the old position. */
		le16_store_release(&p->device_event->flags, VRING_PACKED_EVENT_FLAG_DESC);
	} else {
		le16_store_relaxed(&p->device_event->flags, VRING_PACKED_EVENT_FLAG_ENABLE);
	}
	/* Partner: the driver's fence between making available and reading this structure. */
	atomic_thread_fence(memory_order_seq_cst);
	/*
	 * Within a chain, the place may look taken before the chain's head is: then there is
	 * nothing to pop yet.
	 */
	return is_available(le16_load_relaxed(&p->desc[at].flags), wrap);
}

static void packed_kicks_disable(struct virtqueue *vq)
{
	le16_store_relaxed(&vq->packed.device_event->flags, VRING_PACKED_EVENT_FLAG_DISABLE);
}

static bool packed_needs_interrupt(struct virtqueue *vq)
{
	struct vq_packed *p = &vq->packed;
	uint16_t to = p->next_used, count = (uint16_t)MIN(p->undecided, (uint32_t)UINT16_MAX);
	uint16_t flags, off_wrap, at;

	if (!count)
		return false;
	p->undecided = 0;
	/* Partner: the driver's fence between writing its structure and looking at the ring. */
	atomic_thread_fence(memory_order_seq_cst);
	flags = le16_load_acquire(&p->driver_event->flags);
	if (flags != VRING_PACKED_EVENT_FLAG_DESC || !vq->event_idx)
		return flags != VRING_PACKED_EVENT_FLAG_DISABLE;
	off_wrap = le16_load_relaxed(&p->driver_event->off_wrap);
	at = off_wrap & 0x7fff;
	/* A slot of the lap before this one counts from below 0. */
	if (off_wrap >> 15 != p->used_wrap)
		at = (uint16_t)(at - vq->size);
	return (uint16_t)(to - at - 1) < count;
}

const struct vq_ring_ops vq_packed_ops = {
	.activate = packed_activate,
	.pop = packed_pop,
	.unpop = packed_unpop,
	.push = packed_push,
	.publish = packed_publish,
	.holds = packed_holds,
	.kicks_enable = packed_kicks_enable,
	.kicks_disable = packed_kicks_disable,
	.kicks_withdraw = packed_kicks_disable,
	.needs_interrupt = packed_needs_interrupt,
};
