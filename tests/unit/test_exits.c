/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A vCPU's exits by cause and device, and KVM's own statistics from a file that looks like KVM's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <linux/kvm.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/exits.h"
#include "vmm/kvm_stats.h"
#include "vmm/util.h"

static json_int_t member(json_t *root, const char *group, const char *name)
{
	json_t *value = json_object_get(json_object_get(root, group), name);

	assert_true(json_is_integer(value));
	return json_integer_value(value);
}

static void test_causes(void **state)
{
	struct exits exits = { 0 };
	json_t *root;

	(void)state;
	for (unsigned i = 0; i < EXIT_CAUSES; i++)
		for (unsigned n = 0; n <= i; n++)
			exits_count(&exits, (enum exit_cause)i);
	root = exits_json(&exits);
	assert_int_equal(json_object_size(json_object_get(root, "exits")), EXIT_CAUSES);
	assert_int_equal(member(root, "exits", "io_in"), EXIT_CAUSE_IO_IN + 1);
	assert_int_equal(member(root, "exits", "mmio_write"), EXIT_CAUSE_MMIO_WRITE + 1);
	assert_int_equal(member(root, "exits", "other"), EXIT_CAUSE_OTHER + 1);
	assert_int_equal(json_object_size(json_object_get(root, "devices")), 0);
	json_decref(root);
}

static void test_devices(void **state)
{
	/* Two of one name, at two addresses. */
	static const char one[] = "virtio", other[] = "virtio", serial[] = "serial";
	struct exits exits = { 0 };
	json_t *root;

	(void)state;
	exits_count_device(&exits, one);
	exits_count_device(&exits, serial);
	exits_count_device(&exits, other);
	exits_count_device(&exits, NULL);
	exits_count_device(&exits, one);
	root = exits_json(&exits);
	assert_int_equal(json_object_size(json_object_get(root, "devices")), 3);
	assert_int_equal(member(root, "devices", "virtio"), 3);
	assert_int_equal(member(root, "devices", "serial"), 1);
	assert_int_equal(member(root, "devices", "none"), 1);
	json_decref(root);
}

static void test_more_devices_than_there_is_room_for(void **state)
{
	char names[EXIT_DEVICES + 4][8];
	struct exits exits = { 0 };
	json_t *root;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(names[i], sizeof(names[i]), "d%u", i);
		exits_count_device(&exits, names[i]);
	}
	exits_count_device(&exits, names[EXIT_DEVICES - 1]);
	root = exits_json(&exits);
	assert_int_equal(json_object_size(json_object_get(root, "devices")), EXIT_DEVICES);
	assert_int_equal(member(root, "devices", "d0"), 1);
	assert_int_equal(member(root, "devices", "d15"), 2);
	json_decref(root);
}

/* ---- KVM's statistics ---- */

#define NAME_SIZE 16

struct stat_row {
	struct kvm_stats_desc desc;
	char name[NAME_SIZE];
};

struct stats_file {
	struct kvm_stats_header header;
	struct stat_row rows[3];
	uint64_t values[6];
};

static const struct stats_file good = {
	.header = { .name_size = NAME_SIZE,
		    .num_desc = 3,
		    .desc_offset = offsetof(struct stats_file, rows),
		    .data_offset = offsetof(struct stats_file, values) },
	.rows = { { { .size = 1, .offset = 8 }, "exits" },
		  { { .flags = KVM_STATS_TYPE_LOG_HIST, .size = 4, .offset = 16 }, "polls_hist" },
		  { { .flags = KVM_STATS_TYPE_INSTANT, .size = 1, .offset = 0 }, "blocking" } },
	.values = { 1, 12345, 2, 3, 4, 5 },
};

static json_t *read_stats(const struct stats_file *file, size_t size)
{
	int fd = memfd_create("stats", MFD_CLOEXEC);
	json_t *root;

	assert_int_equal(write(fd, file, size), size);
	root = kvm_stats_json(fd);
	close(fd);
	return root;
}

static void test_kvm_stats(void **state)
{
	json_t *root = read_stats(&good, sizeof(good));

	(void)state;
	assert_int_equal(json_object_size(root), 2);
	assert_int_equal(json_integer_value(json_object_get(root, "exits")), 12345);
	assert_int_equal(json_integer_value(json_object_get(root, "blocking")), 1);
	json_decref(root);
}

static void test_kvm_stats_that_are_none(void **state)
{
	struct stats_file file;
	json_t *root = kvm_stats_json(-1);

	(void)state;
	assert_true(json_is_null(root));
	/* Cut anywhere before the last value that counts. */
	for (size_t size = 0; size < offsetof(struct stats_file, values[2]); size += 4)
		assert_true(json_is_null(read_stats(&good, size)));
	file = good;
	memset(file.rows[0].name, 'x', NAME_SIZE);
	assert_true(json_is_null(read_stats(&file, sizeof(file))));
	file = good;
	file.header.name_size = 0;
	assert_true(json_is_null(read_stats(&file, sizeof(file))));
	file = good;
	file.header.num_desc = UINT32_MAX;
	assert_true(json_is_null(read_stats(&file, sizeof(file))));
	file = good;
	file.rows[2].desc.offset = UINT32_MAX;
	assert_true(json_is_null(read_stats(&file, sizeof(file))));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_causes),
		cmocka_unit_test(test_devices),
		cmocka_unit_test(test_more_devices_than_there_is_room_for),
		cmocka_unit_test(test_kvm_stats),
		cmocka_unit_test(test_kvm_stats_that_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
