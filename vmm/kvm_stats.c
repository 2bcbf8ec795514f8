/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The file begins with a header that says where its descriptors and its values are. A descriptor is
 * a fixed part and a name of the length that the header gives. See Documentation/virt/kvm/api.rst,
 * 4.133.
 */
#include "vmm/kvm_stats.h"

#include <linux/kvm.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "vmm/util.h"

/* Far more than any kernel has; against nonsense only. */
#define MOST_STATS 4096u
#define MOST_NAME  256u

int kvm_stats_open(int vcpu_fd)
{
	return ioctl(vcpu_fd, KVM_GET_STATS_FD, NULL);
}

static bool read_all(int fd, void *data, size_t len, uint64_t offset)
{
	return pread(fd, data, len, (off_t)offset) == (ssize_t)len;
}

static bool is_single(const struct kvm_stats_desc *desc)
{
	uint32_t type = desc->flags & KVM_STATS_TYPE_MASK;

	return desc->size == 1 && type <= KVM_STATS_TYPE_PEAK;
}

/* Adds one statistic; false when it cannot be read. */
static bool add_stat(json_t *object, int fd, const struct kvm_stats_header *header,
		     const struct kvm_stats_desc *desc)
{
	const char *name = (const char *)(desc + 1);
	uint64_t value;

	if (!is_single(desc))
		return true;
	if (name[header->name_size - 1] ||
	    !read_all(fd, &value, sizeof(value), (uint64_t)header->data_offset + desc->offset))
		return false;
	return !json_object_set_new(object, name, json_integer((json_int_t)value));
}

static bool add_all(json_t *object, int fd, const struct kvm_stats_header *header)
{
	size_t size = sizeof(struct kvm_stats_desc) + header->name_size;
	size_t bytes = header->num_desc * size;
	char *table = malloc(bytes);
	bool fine = table && read_all(fd, table, bytes, header->desc_offset);

	for (unsigned i = 0; fine && i < header->num_desc; i++)
		fine = add_stat(object, fd, header, (struct kvm_stats_desc *)(table + i * size));
	free(table);
	return fine;
}

json_t *kvm_stats_json(int stats_fd)
{
	struct kvm_stats_header header;
	json_t *object;

	if (stats_fd < 0 || !read_all(stats_fd, &header, sizeof(header), 0) ||
	    !header.name_size || header.name_size > MOST_NAME || header.name_size % 8 ||
	    header.num_desc > MOST_STATS)
		return json_null();
	object = json_object();
	if (add_all(object, stats_fd, &header))
		return object;
	json_decref(object);
	return json_null();
}
