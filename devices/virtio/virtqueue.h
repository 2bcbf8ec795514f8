/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A virtqueue, as a device sees it (virtio 1.3, sections 2.6 to 2.8). Nothing outside virtqueue.c
 * and vq_*.c knows which ring format it has.
 *
 * Life: the driver's configuration arrives through vq_set_*(), which a live queue ignores;
 * vq_activate() validates all of it once and makes the queue live; from then until vq_deactivate()
 * it belongs to one thread, and nothing here takes a lock.
 *
 * The guest is not trusted. Every descriptor is read exactly once, and only the copy is used. A
 * ring or chain that breaks the specification kills the queue: vq_pop() returns an error from then
 * on, and `fault` says why.
 */
#ifndef WHELP_VIRTQUEUE_H
#define WHELP_VIRTQUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "devices/virtio/virtio.h"
#include "vmm/mem.h"

/* A ring may have up to 2^15 entries (2.7, 2.8); this is what the devices here offer at most. */
#define VQ_MAX_SIZE 4096u

/*
 * One popped chain: `iov` holds the readable pieces, then the writable ones. The pieces point into
 * guest memory, which the guest may still change: copy what you check, then use the copy.
 */
struct vq_chain {
	struct iovec *iov; /* the caller's, with room for `room` pieces */
	unsigned room;
	unsigned readable; /* pieces */
	unsigned writable; /* pieces */
	size_t readable_bytes;
	size_t writable_bytes;
	uint16_t id;	/* the head descriptor's index (split) or the buffer id (packed) */
	uint16_t slots; /* places it takes in the ring: 1 (split), its descriptors (packed) */
	uint16_t descriptors; /* it takes of the queue's, which are as many as the queue's size */
};

struct virtqueue;

/* One ring format. The contracts are those of the vq_ functions of the same names. */
struct vq_ring_ops {
	int (*activate)(struct virtqueue *vq);
	int (*pop)(struct virtqueue *vq, struct vq_chain *chain);
	void (*unpop)(struct virtqueue *vq, const struct vq_chain *chain);
	void (*push)(struct virtqueue *vq, const struct vq_chain *chain, uint32_t written);
	void (*publish)(struct virtqueue *vq);
	bool (*holds)(const struct virtqueue *vq, unsigned places);
	bool (*kicks_enable)(struct virtqueue *vq, unsigned places);
	void (*kicks_disable)(struct virtqueue *vq);
	void (*kicks_withdraw)(struct virtqueue *vq);
	bool (*needs_interrupt)(struct virtqueue *vq);
};

struct vring_desc_le;
struct vring_avail_le;
struct vring_used_le;
struct packed_desc_le;
struct packed_event_le;

/* A live split ring: host pointers resolved once, and the device's position in it. */
struct vq_split {
	const struct vring_desc_le *desc;
	struct vring_avail_le *avail;
	struct vring_used_le *used;
	uint16_t next_avail;
	uint16_t next_used;	 /* where the next push goes */
	uint16_t published; /* the used index that the driver sees */
	uint32_t undecided; /* published since the last interrupt decision */
};

/* A live packed ring. Each side's position comes with its wrap counter. */
struct vq_packed {
	struct packed_desc_le *desc;
	const struct packed_event_le *driver_event;
	struct packed_event_le *device_event;
	uint16_t next_avail;
	uint16_t next_used;
	bool avail_wrap;
	bool used_wrap;
	uint16_t first_flags; /* of the first staged used descriptor: storing them publishes all */
	struct packed_desc_le *first;
	unsigned staged;    /* slots pushed, not published */
	unsigned undecided; /* slots published since the last interrupt decision */
};

struct virtqueue {
	/* The driver's configuration. */
	uint16_t size_max;
	uint16_t size;
	uint64_t desc_gpa;
	uint64_t driver_gpa; /* the available ring, or the driver's event structure */
	uint64_t device_gpa; /* the used ring, or the device's event structure */
	bool enabled;

	/* Live state. */
	bool live;
	bool event_idx;
	bool indirect;
	const char *fault; /* a constant string, or NULL while all is well */
	const struct mem *mem;
	const struct mem_region *near; /* of `mem`, where the last buffer was */
	const struct vq_ring_ops *ring;
	union {
		struct vq_split split;
		struct vq_packed packed;
	};
};

/* The state after power-on and reset: disabled, with the largest size on offer. */
void vq_init(struct virtqueue *vq, uint16_t size_max);

/* For a split ring: offers no size that is not a power of two. Before the driver sets one. */
void vq_limit_to_power_of_two(struct virtqueue *vq);

/* What the driver writes. Ignored while the queue is enabled, and sizes out of range always. */
void vq_set_size(struct virtqueue *vq, uint16_t size);
void vq_set_desc(struct virtqueue *vq, uint64_t gpa);
void vq_set_driver(struct virtqueue *vq, uint64_t gpa);
void vq_set_device(struct virtqueue *vq, uint64_t gpa);
void vq_enable(struct virtqueue *vq);

/*
 * Makes an enabled queue live, with the negotiated features, in `mem`, which must outlive it. 0, or
 * -EINVAL (size not allowed for the format, address misaligned) or -EFAULT (a part of the ring is
 * not in guest memory), with `fault` set.
 */
int vq_activate(struct virtqueue *vq, const struct mem *mem,
		const struct virtio_features *features);

/* No function below may be under way or be called after this. */
void vq_deactivate(struct virtqueue *vq);

/* For a device that finds a chain which its type forbids: kills the queue; returns -EPROTO. */
int vq_kill(struct virtqueue *vq, const char *why);

/*
 * Takes the next chain the driver made available. Returns 1, 0 when there is none, or -EPROTO when
 * the queue is dead.
 */
int vq_pop(struct virtqueue *vq, struct vq_chain *chain);

/*
 * Gives the chain that was popped last back, as if it had not been popped; nothing was pushed
 * since. Several go back in the reverse order.
 */
void vq_unpop(struct virtqueue *vq, const struct vq_chain *chain);

/*
 * Stages a popped chain as used, with the number of bytes written to it; the driver sees it at
 * publish.
 */
void vq_push(struct virtqueue *vq, const struct vq_chain *chain, uint32_t written);

/* Shows the driver all that was pushed. */
void vq_publish(struct virtqueue *vq);

/*
 * Whether available buffers take that many of the ring's places, 1 to the queue's size: cheap
 * enough for every batch.
 */
bool vq_holds(const struct virtqueue *vq, unsigned places);

/*
 * Whether vq_pop() would find a chain, or a fault: a look that is cheap enough to be taken again
 * and again.
 */
bool vq_is_ready(const struct virtqueue *vq);

/*
 * Asks the driver to kick when it makes a buffer available. Returns true when buffers are available
 * already, whose kick may never come: go on popping.
 */
bool vq_kicks_enable(struct virtqueue *vq);

/*
 * The same for a kick once `places` of the ring are taken by available buffers, 1 to the queue's
 * size. Without EVENT_IDX a driver cannot be told a number: above 1, none is asked for.
 */
bool vq_kicks_enable_at(struct virtqueue *vq, unsigned places);

/* Tells the driver that kicks are not needed. It may still kick. */
void vq_kicks_disable(struct virtqueue *vq);

/*
 * The same where a kick was asked for that did not come yet: with event indices on a split ring that
 * takes a store, which a kick that came makes needless.
 */
void vq_kicks_withdraw(struct virtqueue *vq);

/*
 * Whether what was published since the last call asks for an interrupt. Call it after vq_publish(),
 * once a batch.
 */
bool vq_needs_interrupt(struct virtqueue *vq);

#endif
