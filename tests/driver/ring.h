/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The driver's side of a virtqueue, for tests: the counterpart of devices/virtio/virtqueue.h,
 * written from the specification and not from the device. Nothing here shows which format a ring
 * has.
 *
 * It does not trust the device either: what the device must not do is noted in `error`.
 */
#ifndef WHELP_TESTS_RING_H
#define WHELP_TESTS_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "devices/virtio/virtio.h"
#include "tests/driver/board.h"

/* How many pieces an indirect table has room for. */
#define RING_TABLE_SIZE 64u

struct ring_piece {
	uint64_t gpa;
	uint32_t len;
};

struct ring;

/* One format. The contracts are those of the ring_ functions of the same names. */
struct ring_ops {
	void (*init)(struct ring *ring);
	int (*add)(struct ring *ring, const struct ring_piece *pieces, unsigned readable,
		   unsigned writable, bool indirect, void *token);
	bool (*publish)(struct ring *ring);
	bool (*take)(struct ring *ring, void **token, uint32_t *written);
	bool (*interrupts_enable)(struct ring *ring);
	void (*interrupts_ahead)(struct ring *ring, unsigned ahead);
	void (*interrupts_disable)(struct ring *ring);
};

struct split_desc;
struct split_avail;
struct split_used;

struct ring_split {
	struct split_desc *desc;
	struct split_avail *avail;
	struct split_used *used;
	uint16_t free_head;
	uint16_t added;	    /* the available index with what was added */
	uint16_t published; /* and as the device sees it */
	uint16_t taken;	    /* the used index up to which we took */
};

struct packed_desc;
struct packed_event;

/* Each side's position comes with its wrap counter. */
struct ring_packed {
	struct packed_desc *desc;
	struct packed_event *driver_event; /* ours */
	const struct packed_event *device_event;
	uint16_t next; /* where the next chain goes */
	bool wrap;
	uint16_t taken; /* where the next used descriptor will be */
	bool taken_wrap;
	struct packed_desc *head; /* of the first chain that was added and is not published */
	uint16_t head_flags;	  /* storing them publishes all */
	uint16_t added;		  /* slots not published */
	uint16_t *free_ids;	  /* a stack; in order, ids are taken by turns instead */
	uint16_t next_id;
	unsigned free_id_count;
};

/* What is on its way under one buffer id. */
struct ring_slot {
	void *token;
	uint32_t room;	  /* bytes the device may write */
	uint16_t entries; /* descriptors it takes; 0: the id is free */
};

struct ring {
	const struct ring_ops *ops;
	struct board *board;
	uint16_t size;
	bool event_idx;
	bool in_order;
	uint64_t desc_gpa; /* the three parts, as a transport wants them */
	uint64_t driver_gpa;
	uint64_t device_gpa;
	uint64_t tables_gpa; /* RING_TABLE_SIZE descriptors for each id */
	struct ring_slot *slots;
	uint16_t free;	   /* descriptors */
	const char *error; /* what the device did wrong first, or NULL */
	uint16_t oldest;   /* in order: the id that comes back next */
	struct ring_split split;
	struct ring_packed packed;
};

/*
 * Lays an empty ring of `size` entries out in the board's memory, in the format and with the
 * notification scheme that `features` name. ring_fini() is fine on a zeroed ring.
 */
void ring_init(struct ring *ring, struct board *board, const struct virtio_features *features,
	       uint16_t size);
void ring_fini(struct ring *ring);

/*
 * Adds a chain: `readable` pieces for the device to read, then `writable` ones, in as many
 * descriptors or in one indirect table. `token` comes back when the chain is used. 0, or -ENOSPC.
 */
int ring_add(struct ring *ring, const struct ring_piece *pieces, unsigned readable,
	     unsigned writable, void *token);
int ring_add_indirect(struct ring *ring, const struct ring_piece *pieces, unsigned readable,
		      unsigned writable, void *token);

/* Shows the device all that was added. True when it wants a kick for that. */
bool ring_publish(struct ring *ring);

/* Takes the next used chain; false when there is none, or an `error`. */
bool ring_take(struct ring *ring, void **token, uint32_t *written);

/*
 * Asks for an interrupt for the next used chain; true when one is there already: no interrupt may
 * come.
 */
bool ring_interrupts_enable(struct ring *ring);

/*
 * Asks for an interrupt not before `ahead` + 1 more used chains (split) or slots (packed); below
 * the ring's size. For rings with event indices.
 */
void ring_interrupts_ahead(struct ring *ring, unsigned ahead);

/* Interrupts are not needed; they may come. */
void ring_interrupts_disable(struct ring *ring);

/* For the formats: notes a fault of the device's; returns false. */
bool ring_fail(struct ring *ring, const char *error);

/*
 * For the formats: the id of a used chain is one that is on its way, and in turn, and `written`
 * bytes fit.
 */
bool ring_check_used(struct ring *ring, uint32_t id, uint32_t written);

extern const struct ring_ops ring_split_ops;
extern const struct ring_ops ring_packed_ops;

#endif
