/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The split ring (virtio 1.3, section 2.7): a descriptor table, the available ring that the driver
 * writes, the used ring that the device writes. Indices run freely through 2^16 and are taken
 * modulo the size, a power of two.
 *
 * Ordering, with the partner on the driver's side:
 * - avail->idx is loaded with acquire; the driver stores it after the entries (2.7.13.3).
 * - used->idx is stored with release; the driver loads it before the entries (2.7.14).
 * - between storing used->idx and reading used_event or avail->flags stands a full fence; the
 *   driver has one between writing used_event and reading used->idx. One of the two sees the other.
 * - between storing avail_event or used->flags and reading avail->idx stands a full fence; the
 *   driver has one between storing avail->idx and reading avail_event.
 */
#include <errno.h>
#include <stdatomic.h>

#include "devices/virtio/vq_internal.h"
#include "vmm/le.h"
#include "vmm/util.h"

struct vring_desc_le {
	le64 addr;
	le32 len;
	le16 flags;
	le16 next;
};

/* `ring` is followed by used_event. */
struct vring_avail_le {
	le16 flags;
	le16 idx;
	le16 ring[];
};

struct vring_used_elem_le {
	le32 id;
	le32 len;
};

/* `ring` is followed by avail_event. */
struct vring_used_le {
	le16 flags;
	le16 idx;
	struct vring_used_elem_le ring[];
};

_Static_assert(sizeof(struct vring_desc_le) == 16, "2.7.5");
_Static_assert(sizeof(struct vring_used_elem_le) == 8, "2.7.8");

static struct vq_descriptor read_descriptor(const struct vring_desc_le *from)
{
	return (struct vq_descriptor){
		.addr = le64_load_relaxed(&from->addr),
		.len = le32_load_relaxed(&from->len),
		.flags = le16_load_relaxed(&from->flags),
		.next = le16_load_relaxed(&from->next),
	};
}

static le16 *used_event(const struct virtqueue *vq)
{
	return &vq->split.avail->ring[vq->size];
}

static le16 *avail_event(const struct virtqueue *vq)
{
	return (le16 *)&vq->split.used->ring[vq->size];
}

static int split_activate(struct virtqueue *vq)
{
	struct vq_split *s = &vq->split;
	uint64_t size = vq->size;
	/* The event fields are there with or without EVENT_IDX (2.7.6, 2.7.8). */
	uint64_t avail_bytes = sizeof(*s->avail) + size * sizeof(le16) + sizeof(le16);
	uint64_t used_bytes =
		sizeof(*s->used) + size * sizeof(struct vring_used_elem_le) + sizeof(le16);

	if (!is_power_of_two(size)) {
		vq_kill(vq, "its size is not a power of two");
		return -EINVAL;
	}
	if (vq->desc_gpa % 16 || vq->driver_gpa % 2 || vq->device_gpa % 4) {
		vq_kill(vq, "a part of the ring is misaligned");
		return -EINVAL;
	}
	*s = (struct vq_split){
		.desc = mem_ptr(vq->mem, vq->desc_gpa, size * sizeof(*s->desc)),
		.avail = mem_ptr(vq->mem, vq->driver_gpa, avail_bytes),
		.used = mem_ptr(vq->mem, vq->device_gpa, used_bytes),
	};
	if (!s->desc || !s->avail || !s->used) {
		vq_kill(vq, "a part of the ring is outside of guest memory");
		return -EFAULT;
	}
	/* With event indices it stays 0 (2.7.10). */
	le16_store_relaxed(&s->used->flags, 0);
	return 0;
}

static int walk_indirect(struct virtqueue *vq, struct vq_chain *chain, struct vq_descriptor d);

/*
 * Follows a chain through `table` of `count` descriptors from `at` on. No chain may be longer than
 * the queue (2.7.5.3.1), which bounds loops. An indirect descriptor must be the last, and none may
 * be in an indirect table (same section), so that the recursion is at an end there.
 */
static int walk(struct virtqueue *vq, struct vq_chain *chain, const struct vring_desc_le *table,
		unsigned count, uint16_t at, bool nested)
{
	for (uint16_t walked = 1; walked <= vq->size; walked++) {
		struct vq_descriptor d;
		int err;

		if (at >= count)
			return vq_kill(vq, "a descriptor's index is outside of its table");
		d = read_descriptor(&table[at]);
		if (!nested)
			chain->descriptors = walked;
		if (d.flags & VRING_DESC_F_INDIRECT) {
			if (nested || d.flags & VRING_DESC_F_NEXT)
				return vq_kill(vq,
					       "an indirect descriptor is nested or not the last");
			return walk_indirect(vq, chain, d);
		}
		err = vq_add_buffer(vq, chain, d);
		if (err || !(d.flags & VRING_DESC_F_NEXT))
			return err;
		at = d.next;
	}
	return vq_kill(vq, "a chain is longer than the queue, or a loop");
}

static int walk_indirect(struct virtqueue *vq, struct vq_chain *chain, struct vq_descriptor d)
{
	const struct vring_desc_le *table = vq_indirect_table(vq, d);

	if (!table)
		return -EPROTO;
	return walk(vq, chain, table, d.len / sizeof(*table), 0, true);
}

static int split_pop(struct virtqueue *vq, struct vq_chain *chain)
{
	struct vq_split *s = &vq->split;
	/* Partner: the driver's release of avail->idx after writing the entry. */
	uint16_t waiting = (uint16_t)(le16_load_acquire(&s->avail->idx) - s->next_avail);
	int err;

	if (!waiting)
		return 0;
	if (waiting > vq->size)
		return vq_kill(vq, "the available index jumped by more than the queue's size");
	vq_start_chain(chain);
	chain->id = le16_load_relaxed(&s->avail->ring[s->next_avail & (vq->size - 1)]);
	chain->slots = 1;
	err = walk(vq, chain, s->desc, vq->size, chain->id, false);
	if (err)
		return err;
	s->next_avail++;
	return 1;
}

static void split_unpop(struct virtqueue *vq, const struct vq_chain *chain)
{
	vq->split.next_avail = (uint16_t)(vq->split.next_avail - chain->slots);
}

static void split_push(struct virtqueue *vq, const struct vq_chain *chain, uint32_t written)
{
	struct vq_split *s = &vq->split;
	struct vring_used_elem_le *elem = &s->used->ring[s->next_used & (vq->size - 1)];

	le32_store_relaxed(&elem->id, chain->id);
	le32_store_relaxed(&elem->len, written);
	s->next_used++;
}

static void split_publish(struct virtqueue *vq)
{
	struct vq_split *s = &vq->split;

	if (s->published == s->next_used)
		return;
	/* Partner: the driver's acquire of used->idx before it reads the entries. */
	le16_store_release(&s->used->idx, s->next_used);
	s->undecided += (uint16_t)(s->next_used - s->published);
	s->published = s->next_used;
}

static unsigned waiting(const struct virtqueue *vq)
{
	return (uint16_t)(le16_load_relaxed(&vq->split.avail->idx) - vq->split.next_avail);
}

static bool split_holds(const struct virtqueue *vq, unsigned places)
{
	return waiting(vq) >= places;
}

static bool split_kicks_enable(struct virtqueue *vq, unsigned places)
{
	struct vq_split *s = &vq->split;

	if (vq->event_idx)
		le16_store_relaxed(avail_event(vq), (uint16_t)(s->next_avail + places - 1));
	else
		le16_store_relaxed(&s->used->flags, 0);
	/* Partner: the driver's fence between avail->idx and reading avail_event or used->flags. */
	atomic_thread_fence(memory_order_seq_cst);
	return waiting(vq) >= places;
}

static void split_kicks_disable(struct virtqueue *vq)
{
	/*
	 * With event indices, leaving avail_event behind is enough: the driver kicks only when
	 * avail->idx passes it.
	 */
	if (!vq->event_idx)
		le16_store_relaxed(&vq->split.used->flags, VRING_USED_F_NO_NOTIFY);
}

static void split_kicks_withdraw(struct virtqueue *vq)
{
	/* A position behind, which the driver comes to only after a lap of all indices. */
	if (vq->event_idx)
		le16_store_relaxed(avail_event(vq), (uint16_t)(vq->split.next_avail - 1));
	else
		split_kicks_disable(vq);
}

static bool split_needs_interrupt(struct virtqueue *vq)
{
	struct vq_split *s = &vq->split;
	/* Indices tell no more apart; a driver that sleeps is at most a ring behind. */
	uint32_t count = MIN(s->undecided, (uint32_t)UINT16_MAX);

	if (!count)
		return false;
	s->undecided = 0;
	/*
	 * Partner: the driver's fence between writing used_event or avail->flags and reading
	 * used->idx.
	 */
	atomic_thread_fence(memory_order_seq_cst);
	if (!vq->event_idx)
		return !(le16_load_relaxed(&s->avail->flags) & VRING_AVAIL_F_NO_INTERRUPT);
	/* Asked for when used_event is among the last `count` indices: 2.7.7.2. */
	return (uint16_t)(s->published - le16_load_relaxed(used_event(vq)) - 1) < count;
}

const struct vq_ring_ops vq_split_ops = {
	.activate = split_activate,
	.pop = split_pop,
	.unpop = split_unpop,
	.push = split_push,
	.publish = split_publish,
	.holds = split_holds,
	.kicks_enable = split_kicks_enable,
	.kicks_disable = split_kicks_disable,
	.kicks_withdraw = split_kicks_withdraw,
	.needs_interrupt = split_needs_interrupt,
};
