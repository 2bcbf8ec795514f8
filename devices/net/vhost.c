/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Rings are given to vhost-net by host addresses, and guest memory as a table of what the guest's
 * addresses are on the host. The kernel checks every address that the guest puts into a ring
 * against that table.
 *
 * A ring runs while it has a back end, the tap's queue. Taking that away waits for the kernel's
 * thread, so that nothing of the ring is in use afterwards; then kick and call are taken away, too.
 */
#include "devices/net/vhost.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/vhost.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "vmm/linux_new.h"
#include "vmm/log.h"
#include "vmm/util.h"

/* As struct vhost_features_array, which has no length: as many as we know. */
struct vhost_features {
	uint64_t count;
	uint64_t words[VIRTIO_FEATURE_WORDS / 2];
};

static int call(const struct vhost *vhost, unsigned long request, const void *arg)
{
	return ioctl(vhost->fd, request, arg) ? -errno : 0;
}

static const char *remedy(int err)
{
	switch (err) {
	case ENOENT:
	case ENXIO:
	case ENODEV:
		return "`modprobe vhost_net`, as root";
	case EACCES:
	case EPERM:
		return "add yourself to its group (usually kvm), or run as root";
	}
	return "see the kernel's log, or leave vhost=on out";
}

static int refused(int err, const char *what)
{
	log_error("--net vhost=on: %s%s: %s: %s", VHOST_NET_PATH, what, strerror(-err),
		  remedy(-err));
	return err;
}

/* Linux 6.17 has more than 64 features, and another call for them. */
static int get_features(struct vhost *vhost)
{
	struct vhost_features all = { .count = ARRAY_SIZE(all.words) };
	int err = call(vhost, VHOST_GET_FEATURES_ARRAY, &all);

	if (err) {
		memset(all.words, 0, sizeof(all.words));
		err = call(vhost, VHOST_GET_FEATURES, &all.words[0]);
	}
	if (err)
		return refused(err, " does not answer as vhost-net");
	for (unsigned i = 0; i < VIRTIO_FEATURE_WORDS; i++)
		vhost->features.word[i] = (uint32_t)(all.words[i / 2] >> i % 2 * 32);
	return 0;
}

static int set_memory(struct vhost *vhost, const struct mem *mem)
{
	/* The table's head and its regions; the header has no type for both. */
	union {
		struct vhost_memory head;
		uint8_t room[sizeof(struct vhost_memory) +
			     MEM_MAX_REGIONS * sizeof(struct vhost_memory_region)];
	} table = { .room = { 0 } };

	table.head.nregions = mem->count;
	for (unsigned i = 0; i < mem->count; i++)
		table.head.regions[i] = (struct vhost_memory_region){
			.guest_phys_addr = mem->regions[i].gpa,
			.memory_size = mem->regions[i].size,
			.userspace_addr = (uintptr_t)mem->regions[i].host,
		};
	return call(vhost, VHOST_SET_MEM_TABLE, &table);
}

int vhost_open(struct vhost *vhost, const struct mem *mem)
{
	int err;

	vhost->fd = open(VHOST_NET_PATH, O_RDWR | O_CLOEXEC);
	if (vhost->fd < 0)
		return refused(-errno, "");
	err = get_features(vhost);
	if (err)
		return err;
	err = call(vhost, VHOST_SET_OWNER, NULL);
	if (err)
		return refused(err, " gets no thread");
	err = set_memory(vhost, mem);
	return err ? refused(err, " does not take the guest's memory") : 0;
}

void vhost_close(struct vhost *vhost)
{
	if (vhost->fd >= 0)
		close(vhost->fd);
	vhost->fd = -1;
}

int vhost_set_features(struct vhost *vhost, const struct virtio_features *accepted)
{
	struct vhost_features all = { .count = ARRAY_SIZE(all.words) };

	for (unsigned i = 0; i < VIRTIO_FEATURE_WORDS; i++) {
		uint64_t known = accepted->word[i] & vhost->features.word[i];

		all.words[i / 2] |= known << i % 2 * 32;
	}
	/* For it this bit means that addresses are to be asked for, one by one. */
	all.words[0] &= ~(1ull << VIRTIO_F_ACCESS_PLATFORM);
	if (!all.words[1])
		return call(vhost, VHOST_SET_FEATURES, &all.words[0]);
	return call(vhost, VHOST_SET_FEATURES_ARRAY, &all);
}

static int set_backend(struct vhost *vhost, enum vhost_ring_index index, int tap_fd)
{
	const struct vhost_vring_file file = { .index = index, .fd = tap_fd };

	return call(vhost, VHOST_NET_SET_BACKEND, &file);
}

static int set_eventfd(struct vhost *vhost, unsigned long request, enum vhost_ring_index index,
		       int fd)
{
	const struct vhost_vring_file file = { .index = index, .fd = fd };

	return call(vhost, request, &file);
}

static int set_ring(struct vhost *vhost, enum vhost_ring_index index, const struct vhost_ring *ring)
{
	const struct vhost_vring_state size = { .index = index, .num = ring->size };
	const struct vhost_vring_state first = { .index = index, .num = 0 };
	const struct vhost_vring_addr address = {
		.index = index,
		.desc_user_addr = (uintptr_t)ring->desc,
		.avail_user_addr = (uintptr_t)ring->driver,
		.used_user_addr = (uintptr_t)ring->device,
	};
	int err = call(vhost, VHOST_SET_VRING_NUM, &size);

	if (!err)
		err = call(vhost, VHOST_SET_VRING_BASE, &first);
	if (!err)
		err = call(vhost, VHOST_SET_VRING_ADDR, &address);
	if (!err)
		err = set_eventfd(vhost, VHOST_SET_VRING_CALL, index, ring->call_fd);
	if (!err)
		err = set_eventfd(vhost, VHOST_SET_VRING_ERR, index, ring->error_fd);
	if (!err)
		err = set_eventfd(vhost, VHOST_SET_VRING_KICK, index, ring->kick_fd);
	return err;
}

int vhost_start(struct vhost *vhost, enum vhost_ring_index index, const struct vhost_ring *ring,
		int tap_fd)
{
	int err = set_ring(vhost, index, ring);

	/* What is in the ring by now is found without a kick. */
	if (!err)
		err = set_backend(vhost, index, tap_fd);
	if (err)
		vhost_stop(vhost, index);
	return err;
}

void vhost_pause(struct vhost *vhost, enum vhost_ring_index index)
{
	/* Refused only to a stranger, or for a ring that there is not. */
	set_backend(vhost, index, -1);
}

int vhost_resume(struct vhost *vhost, enum vhost_ring_index index, int tap_fd)
{
	return set_backend(vhost, index, tap_fd);
}

void vhost_stop(struct vhost *vhost, enum vhost_ring_index index)
{
	vhost_pause(vhost, index);
	set_eventfd(vhost, VHOST_SET_VRING_KICK, index, -1);
	set_eventfd(vhost, VHOST_SET_VRING_CALL, index, -1);
	set_eventfd(vhost, VHOST_SET_VRING_ERR, index, -1);
}

bool vhost_tap_gone(int tap_fd)
{
	struct ifreq request;

	return ioctl(tap_fd, TUNGETIFF, &request) && errno == EBADFD;
}
