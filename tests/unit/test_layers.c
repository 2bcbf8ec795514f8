/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The build's check of the layers, on small trees that keep to them or do not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vmm/util.h"

struct layer_case {
	const char *path;
	const char *line;
	const char *says; /* NULL: allowed */
};

/* Runs `command` on a folder of `root`. */
static void run(const char *what, const char *root, const char *folder)
{
	char command[256];

	snprintf(command, sizeof(command), "%s %s%s", what, root, folder);
	assert_int_equal(system(command), 0);
}

/* Runs the check on `root`; returns its exit status, and what it wrote. */
static int check(const char *root, char *said, size_t size)
{
	char command[256];
	size_t used;
	FILE *pipe;

	snprintf(command, sizeof(command), "tools/checklayers %s 2>&1", root);
	pipe = popen(command, "r");
	assert_non_null(pipe);
	used = fread(said, 1, size - 1, pipe);
	said[used] = '\0';
	return WEXITSTATUS(pclose(pipe));
}

/* Makes a tree with one file of `lines` empty lines below one line; it goes by drop_tree(). */
static void make_tree(char root[64], const char *path, const char *line, unsigned lines)
{
	const char *tmp = getenv("TMPDIR");
	char name[128];
	FILE *file;

	snprintf(root, 64, "%.40s/layers.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(root));
	run("mkdir -p", root, "/vmm/x86");
	run("mkdir -p", root, "/devices/virtio");
	snprintf(name, sizeof(name), "%s/%s", root, path);
	file = fopen(name, "we");
	assert_non_null(file);
	fprintf(file, "%s\n", line);
	while (lines--)
		fputc('\n', file);
	assert_int_equal(fclose(file), 0);
}

static void drop_tree(const char *root)
{
	run("rm -r", root, "");
}

static void test_include(void **state)
{
	const struct layer_case *row = *state;
	char root[64], said[1024], where[80];
	int status;

	make_tree(root, row->path, row->line, 0);
	status = check(root, said, sizeof(said));
	drop_tree(root);
	if (!row->says) {
		assert_string_equal(said, "");
		assert_int_equal(status, 0);
		return;
	}
	snprintf(where, sizeof(where), "%s:1: ", row->path);
	assert_int_equal(status, 1);
	assert_ptr_equal(strstr(said, where), said);
	if (!strstr(said, row->says))
		fail_msg("\"%s\" is not in: %s", row->says, said);
}

static void test_length(void **state)
{
	char root[64], said[1024];

	(void)state;
	make_tree(root, "vmm/long.c", "", 599);
	assert_int_equal(check(root, said, sizeof(said)), 0);
	drop_tree(root);
	make_tree(root, "vmm/long.c", "", 600);
	assert_int_equal(check(root, said, sizeof(said)), 1);
	drop_tree(root);
	assert_non_null(strstr(said, "vmm/long.c:601: longer than 600 lines"));
}

static void test_no_sources(void **state)
{
	char root[64], said[1024];

	(void)state;
	make_tree(root, "vmm/README", "", 0);
	assert_int_equal(check(root, said, sizeof(said)), 2);
	drop_tree(root);
	assert_non_null(strstr(said, "no sources"));
}

#define INCLUDE(path, line, says)                                                                  \
	{                                                                                          \
		path " " line, test_include, NULL, NULL, (void *)&(struct layer_case)              \
		{                                                                                  \
			path, line, says                                                           \
		}                                                                                  \
	}

static const struct CMUnitTest tests[] = {
	INCLUDE("vmm/machine.c", "#include \"devices/serial.h\"", NULL),
	INCLUDE("vmm/main.c", "#include \"devices/serial.h\"", NULL),
	INCLUDE("vmm/machine_nics.c", "#include \"devices/pci.h\"", NULL),
	INCLUDE("vmm/machine_nics.h", "#include \"devices/pci.h\"", NULL),
	INCLUDE("vmm/main.h", "#include \"devices/pci.h\"", "core must not know devices"),
	INCLUDE("devices/pci.c", "#include \"vmm/machine_nics.h\"", "the machine"),
	INCLUDE("vmm/bus.c", "#include \"devices/serial.h\"", "core must not know devices"),
	INCLUDE("vmm/x86/cpu.c", "#include \"devices/pci.h\"", "core must not know devices"),
	INCLUDE("vmm/bus.h", "#  include <devices/pci.h>", "core must not know devices"),
	INCLUDE("devices/pci.c", "#include \"devices/pci.h\"", NULL),
	INCLUDE("devices/pci.c", "#include \"vmm/bus.h\"", NULL),
	INCLUDE("devices/pci.c", "#include <linux/virtio_net.h>", NULL),
	INCLUDE("devices/pci.c", "#include \"vmm/kvm.h\"", "devices must not know KVM"),
	INCLUDE("devices/pci.c", "\t#include \"vmm/vcpu.h\"", "devices must not know KVM"),
	INCLUDE("devices/virtio/net.h", "#include \"vmm/machine.h\"", "the machine"),
	INCLUDE("devices/virtio/net.c", "#include \"vmm/options.h\"", "the machine"),
	INCLUDE("devices/virtio/net.c", "#include \"vmm/stat.h\"", "the machine"),
	INCLUDE("vmm/stat.h", "#include \"vmm/options.h\"", NULL),
	INCLUDE("devices/pci.c", "#include \"vmm/x86/layout.h\"", "the architecture"),
	INCLUDE("devices/pci.c", "#include <linux/kvm.h>", "only vmm/kvm.c"),
	INCLUDE("devices/pci.c", "#include \"../vmm/kvm.h\"", "project root"),
	INCLUDE("vmm/mem.c", "#include <linux/kvm.h>", "only vmm/kvm.c"),
	INCLUDE("vmm/kvm.h", "#include <linux/kvm.h>", "only vmm/kvm.c"),
	INCLUDE("vmm/kvm.c", "#include <linux/kvm.h>", NULL),
	INCLUDE("vmm/kvm_stats.c", "#include <linux/kvm.h>", NULL),
	INCLUDE("vmm/vcpu.c", "#include <linux/kvm.h>", NULL),
	INCLUDE("vmm/machine.c", "#include <linux/kvm.h>", NULL),
	INCLUDE("vmm/x86/cpuid.h", "#include <linux/kvm.h>", NULL),
	INCLUDE("vmm/bus.h", "#include \"vmm/kvm.h\"", "headers that devices include"),
	INCLUDE("vmm/vcpu.h", "#include \"vmm/kvm.h\"", NULL),
	INCLUDE("vmm/mem.h", "#include \"vmm/x86/layout.h\"", "the architecture"),
	cmocka_unit_test(test_length),
	cmocka_unit_test(test_no_sources),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
