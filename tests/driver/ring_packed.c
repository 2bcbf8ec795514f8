/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The driver's side of a packed ring. A chain takes the next slots of the ring; its id, which is
 * in its last descriptor, is from a stack of free ones, so that they come in no order (with
 * IN_ORDER: in turn). Of all that is added before a publish, the first descriptor's flags are
 * stored last, with release; the device loads them with acquire before it looks at any other.
 * Ordering besides:
 * - a used descriptor's flags are loaded with acquire before its id and length; the device stores
 *   those of a batch's first with release.
 * - a full fence stands between storing the head's flags and reading the device's event structure,
 *   and between storing our event structure and looking at the next used descriptor; the device
 *   has the ones they pair with.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/driver/packed_layout.h"
#include "tests/driver/ring.h"

/*
 * What the specification leaves without meaning is not 0, so that a device that looks at it is
 * found.
 */
#define JUNK_ID 0xdeadu

static void packed_init(struct ring *ring)
{
	struct ring_packed *p = &ring->packed;
	uint64_t bytes = (uint64_t)ring->size * sizeof(*p->desc);

	ring->desc_gpa = board_alloc(ring->board, bytes, 16);
	ring->driver_gpa = board_alloc(ring->board, sizeof(*p->driver_event), 4);
	ring->device_gpa = board_alloc(ring->board, sizeof(*p->device_event), 4);
	p->desc = board_ptr(ring->board, ring->desc_gpa, bytes);
	p->driver_event = board_ptr(ring->board, ring->driver_gpa, sizeof(*p->driver_event));
	p->device_event = board_ptr(ring->board, ring->device_gpa, sizeof(*p->device_event));
	p->wrap = p->taken_wrap = true;
	p->free_ids = calloc(ring->size, sizeof(*p->free_ids));
	if (!p->free_ids) {
		fprintf(stderr, "ring: out of memory\n");
		abort();
	}
	for (unsigned i = 0; i < ring->size; i++)
		p->free_ids[p->free_id_count++] = (uint16_t)(ring->size - 1 - i);
}

static void advance(const struct ring *ring, uint16_t *at, bool *wrap, unsigned slots)
{
	unsigned next = *at + slots;

	if (next >= ring->size) {
		next -= ring->size;
		*wrap = !*wrap;
	}
	*at = (uint16_t)next;
}

/* The id and flags are still to be written. */
static void write_desc(struct packed_desc *desc, const struct ring_piece *piece)
{
	le64_store_relaxed(&desc->addr, piece->gpa);
	le32_store_relaxed(&desc->len, piece->len);
	le16_store_relaxed(&desc->id, JUNK_ID);
}

static struct ring_piece write_table(struct ring *ring, uint16_t id,
				     const struct ring_piece *pieces, unsigned readable,
				     unsigned count)
{
	struct ring_piece table = {
		.gpa = ring->tables_gpa + (uint64_t)id * RING_TABLE_SIZE * 16,
		.len = count * 16,
	};
	struct packed_desc *desc = board_ptr(ring->board, table.gpa, table.len);

	for (unsigned i = 0; i < count; i++) {
		write_desc(&desc[i], &pieces[i]);
		le16_store_relaxed(&desc[i].flags, i < readable ? 0 : VRING_DESC_F_WRITE);
	}
	return table;
}

/* Puts one descriptor into the next slot; the first since the last publish stays hidden. */
static struct packed_desc *add_desc(struct ring *ring, const struct ring_piece *piece,
				    unsigned flags)
{
	struct ring_packed *p = &ring->packed;
	struct packed_desc *desc = &p->desc[p->next];

	write_desc(desc, piece);
	flags |= p->wrap ? PACKED_AVAIL : PACKED_USED;
	if (p->added) {
		le16_store_relaxed(&desc->flags, (uint16_t)flags);
	} else {
		p->head = desc;
		p->head_flags = (uint16_t)flags;
	}
	p->added++;
	advance(ring, &p->next, &p->wrap, 1);
	return desc;
}

static uint16_t take_id(struct ring *ring)
{
	struct ring_packed *p = &ring->packed;
	uint16_t id = p->next_id;

	p->free_id_count--;
	if (!ring->in_order)
		return p->free_ids[p->free_id_count];
	p->next_id = (uint16_t)((id + 1) % ring->size);
	return id;
}

static int packed_add(struct ring *ring, const struct ring_piece *pieces, unsigned readable,
		      unsigned writable, bool indirect, void *token)
{
	unsigned count = readable + writable, entries = indirect ? 1 : count;
	struct packed_desc *last = NULL;
	uint32_t room = 0;
	uint16_t id;

	if (!count || entries > ring->free || (indirect && count > RING_TABLE_SIZE))
		return -ENOSPC;
	for (unsigned i = readable; i < count; i++)
		room += pieces[i].len;
	id = take_id(ring);
	ring->slots[id] =
		(struct ring_slot){ .token = token, .room = room, .entries = (uint16_t)entries };
	if (indirect) {
		struct ring_piece table = write_table(ring, id, pieces, readable, count);

		last = add_desc(ring, &table, VRING_DESC_F_INDIRECT);
	} else {
		for (unsigned i = 0; i < count; i++)
			last = add_desc(ring, &pieces[i],
					(i >= readable ? VRING_DESC_F_WRITE : 0u) |
						(i + 1 < count ? VRING_DESC_F_NEXT : 0u));
	}
	le16_store_relaxed(&last->id, id);
	ring->free = (uint16_t)(ring->free - entries);
	return 0;
}

static bool packed_publish(struct ring *ring)
{
	struct ring_packed *p = &ring->packed;
	uint16_t added = p->added, flags, position, event;

	if (!added)
		return false;
	le16_store_release(&p->head->flags, p->head_flags);
	p->added = 0;
	atomic_thread_fence(memory_order_seq_cst);
	flags = le16_load_acquire(&p->device_event->flags);
	if (flags != PACKED_EVENT_DESC || !ring->event_idx)
		return flags != PACKED_EVENT_DISABLE;
	position = le16_load_relaxed(&p->device_event->position);
	event = position & 0x7fff;
	/* A slot of the lap before counts from below 0. */
	if (position >> 15 != p->wrap)
		event = (uint16_t)(event - ring->size);
	return (uint16_t)(p->next - event - 1) < added;
}

static bool is_used(const struct ring_packed *p, uint16_t flags)
{
	unsigned both = PACKED_AVAIL | PACKED_USED;

	return (flags & both) == (p->taken_wrap ? both : 0);
}

static void free_id(struct ring *ring, uint16_t id)
{
	struct ring_packed *p = &ring->packed;

	p->free_ids[p->free_id_count++] = id;
	ring->oldest = (uint16_t)((id + 1) % ring->size);
}

static bool packed_take(struct ring *ring, void **token, uint32_t *written)
{
	struct ring_packed *p = &ring->packed;
	const struct packed_desc *desc = &p->desc[p->taken];
	uint16_t flags = le16_load_acquire(&desc->flags), id;
	unsigned entries;

	/* With nothing under way the flags are from a lap before, or our own. */
	if (!is_used(p, flags))
		return false;
	if (p->free_id_count == ring->size)
		return ring_fail(ring, "more chains were used than were available");
	id = le16_load_relaxed(&desc->id);
	/* The length means something only if something was written (2.8.5). */
	*written = flags & VRING_DESC_F_WRITE ? le32_load_relaxed(&desc->len) : 0;
	if (!ring_check_used(ring, id, *written))
		return false;
	*token = ring->slots[id].token;
	entries = ring->slots[id].entries;
	ring->slots[id].entries = 0;
	free_id(ring, id);
	ring->free = (uint16_t)(ring->free + entries);
	advance(ring, &p->taken, &p->taken_wrap, entries);
	return true;
}

static void ask(struct ring *ring, unsigned ahead)
{
	struct ring_packed *p = &ring->packed;
	uint16_t at = p->taken;
	bool wrap = p->taken_wrap;

	advance(ring, &at, &wrap, ahead);
	le16_store_relaxed(&p->driver_event->position, (uint16_t)(at | wrap << 15));
	/* The device must not see the new flags with the old position. */
	le16_store_release(&p->driver_event->flags, PACKED_EVENT_DESC);
	atomic_thread_fence(memory_order_seq_cst);
}

static bool packed_interrupts_enable(struct ring *ring)
{
	struct ring_packed *p = &ring->packed;

	if (ring->event_idx) {
		ask(ring, 0);
	} else {
		le16_store_relaxed(&p->driver_event->flags, PACKED_EVENT_ENABLE);
		atomic_thread_fence(memory_order_seq_cst);
	}
	return p->free_id_count < ring->size &&
	       is_used(p, le16_load_relaxed(&p->desc[p->taken].flags));
}

static void packed_interrupts_disable(struct ring *ring)
{
	le16_store_relaxed(&ring->packed.driver_event->flags, PACKED_EVENT_DISABLE);
}

const struct ring_ops ring_packed_ops = {
	.init = packed_init,
	.add = packed_add,
	.publish = packed_publish,
	.take = packed_take,
	.interrupts_enable = packed_interrupts_enable,
	.interrupts_ahead = ask,
	.interrupts_disable = packed_interrupts_disable,
};
