/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The driver's side of a split ring. Free descriptors are chained by their `next` fields; with
 * IN_ORDER they are taken, and come back, in the order of the table (2.7.9). Ordering:
 * - avail->idx is stored with release after the entries; the device loads it with acquire.
 * - used->idx is loaded with acquire before the entries; the device stores it with release.
 * - a full fence stands between storing avail->idx and reading avail_event or used->flags, and
 *   between storing used_event or avail->flags and reading used->idx; the device has the ones they
 *   pair with.
 */
#include <errno.h>
#include <stdatomic.h>

#include "tests/driver/ring.h"
#include "tests/driver/split_layout.h"
#include "vmm/util.h"

static void split_init(struct ring *ring)
{
	struct ring_split *s = &ring->split;
	uint64_t size = ring->size;
	uint64_t desc_bytes = size * sizeof(*s->desc);
	uint64_t avail_bytes = sizeof(*s->avail) + size * sizeof(le16) + sizeof(le16);
	uint64_t used_bytes = sizeof(*s->used) + size * sizeof(s->used->ring[0]) + sizeof(le16);

	ring->desc_gpa = board_alloc(ring->board, desc_bytes, 16);
	ring->driver_gpa = board_alloc(ring->board, avail_bytes, 2);
	ring->device_gpa = board_alloc(ring->board, used_bytes, 4);
	s->desc = board_ptr(ring->board, ring->desc_gpa, desc_bytes);
	s->avail = board_ptr(ring->board, ring->driver_gpa, avail_bytes);
	s->used = board_ptr(ring->board, ring->device_gpa, used_bytes);
	for (unsigned i = 0; i < size; i++)
		le16_store_relaxed(&s->desc[i].next, (uint16_t)((i + 1) % size));
}

static void write_desc(struct split_desc *desc, const struct ring_piece *piece, unsigned flags)
{
	le64_store_relaxed(&desc->addr, piece->gpa);
	le32_store_relaxed(&desc->len, piece->len);
	le16_store_relaxed(&desc->flags, (uint16_t)flags);
}

static unsigned piece_flags(unsigned i, unsigned readable, unsigned count)
{
	return (i >= readable ? VRING_DESC_F_WRITE : 0u) | (i + 1 < count ? VRING_DESC_F_NEXT : 0u);
}

/* Fills the head's table; the pointer to it is all that the ring itself gets. */
static struct ring_piece write_table(struct ring *ring, uint16_t head,
				     const struct ring_piece *pieces, unsigned readable,
				     unsigned count)
{
	struct ring_piece table = {
		.gpa = ring->tables_gpa + (uint64_t)head * RING_TABLE_SIZE * 16,
		.len = count * 16,
	};
	struct split_desc *desc = board_ptr(ring->board, table.gpa, table.len);

	for (unsigned i = 0; i < count; i++) {
		write_desc(&desc[i], &pieces[i], piece_flags(i, readable, count));
		le16_store_relaxed(&desc[i].next, (uint16_t)(i + 1));
	}
	return table;
}

static uint16_t write_chain(struct ring *ring, const struct ring_piece *pieces, unsigned readable,
			    unsigned count)
{
	struct ring_split *s = &ring->split;
	uint16_t at = s->free_head;

	for (unsigned i = 0; i < count; i++) {
		write_desc(&s->desc[at], &pieces[i], piece_flags(i, readable, count));
		at = le16_load_relaxed(&s->desc[at].next);
	}
	return at;
}

static int split_add(struct ring *ring, const struct ring_piece *pieces, unsigned readable,
		     unsigned writable, bool indirect, void *token)
{
	struct ring_split *s = &ring->split;
	unsigned count = readable + writable, entries = indirect ? 1 : count;
	uint16_t head = s->free_head;
	uint32_t room = 0;

	if (!count || entries > ring->free || (indirect && count > RING_TABLE_SIZE))
		return -ENOSPC;
	for (unsigned i = readable; i < count; i++)
		room += pieces[i].len;
	ring->slots[head] =
		(struct ring_slot){ .token = token, .room = room, .entries = (uint16_t)entries };
	if (indirect) {
		struct ring_piece table = write_table(ring, head, pieces, readable, count);

		write_desc(&s->desc[head], &table, VRING_DESC_F_INDIRECT);
		s->free_head = le16_load_relaxed(&s->desc[head].next);
	} else {
		s->free_head = write_chain(ring, pieces, readable, count);
	}
	ring->free = (uint16_t)(ring->free - entries);
	le16_store_relaxed(&s->avail->ring[s->added % ring->size], head);
	s->added++;
	return 0;
}

static bool split_publish(struct ring *ring)
{
	struct ring_split *s = &ring->split;
	uint16_t old = s->published, event;

	if (s->added == old)
		return false;
	le16_store_release(&s->avail->idx, s->added);
	s->published = s->added;
	atomic_thread_fence(memory_order_seq_cst);
	if (!ring->event_idx)
		return !(le16_load_relaxed(&s->used->flags) & VRING_USED_F_NO_NOTIFY);
	event = le16_load_relaxed(split_avail_event(s->used, ring->size));
	return (uint16_t)(s->added - event - 1) < (uint16_t)(s->added - old);
}

static void free_chain(struct ring *ring, uint16_t head)
{
	struct ring_split *s = &ring->split;
	uint16_t entries = ring->slots[head].entries, last = head;

	for (unsigned i = 1; i < entries; i++)
		last = le16_load_relaxed(&s->desc[last].next);
	if (ring->in_order) {
		ring->oldest = le16_load_relaxed(&s->desc[last].next);
	} else {
		le16_store_relaxed(&s->desc[last].next, s->free_head);
		s->free_head = head;
	}
	ring->free = (uint16_t)(ring->free + entries);
	ring->slots[head].entries = 0;
}

static bool split_take(struct ring *ring, void **token, uint32_t *written)
{
	struct ring_split *s = &ring->split;
	uint16_t waiting = (uint16_t)(le16_load_acquire(&s->used->idx) - s->taken);
	const struct split_used_elem *elem = &s->used->ring[s->taken % ring->size];
	uint32_t id;

	if (!waiting)
		return false;
	if (waiting > (uint16_t)(s->published - s->taken))
		return ring_fail(ring, "more chains were used than were available");
	id = le32_load_relaxed(&elem->id);
	*written = le32_load_relaxed(&elem->len);
	if (!ring_check_used(ring, id, *written))
		return false;
	*token = ring->slots[id].token;
	free_chain(ring, (uint16_t)id);
	s->taken++;
	return true;
}

static bool split_interrupts_enable(struct ring *ring)
{
	struct ring_split *s = &ring->split;

	if (ring->event_idx)
		le16_store_relaxed(split_used_event(s->avail, ring->size), s->taken);
	else
		le16_store_relaxed(&s->avail->flags, 0);
	atomic_thread_fence(memory_order_seq_cst);
	return le16_load_relaxed(&s->used->idx) != s->taken;
}

static void split_interrupts_ahead(struct ring *ring, unsigned ahead)
{
	struct ring_split *s = &ring->split;

	le16_store_relaxed(split_used_event(s->avail, ring->size), (uint16_t)(s->taken + ahead));
	atomic_thread_fence(memory_order_seq_cst);
}

static void split_interrupts_disable(struct ring *ring)
{
	struct ring_split *s = &ring->split;

	/* With event indices: half a round away from where the device is. */
	if (ring->event_idx)
		le16_store_relaxed(split_used_event(s->avail, ring->size),
				   (uint16_t)(s->taken - 0x8000));
	else
		le16_store_relaxed(&s->avail->flags, VRING_AVAIL_F_NO_INTERRUPT);
}

const struct ring_ops ring_split_ops = {
	.init = split_init,
	.add = split_add,
	.publish = split_publish,
	.take = split_take,
	.interrupts_enable = split_interrupts_enable,
	.interrupts_ahead = split_interrupts_ahead,
	.interrupts_disable = split_interrupts_disable,
};
