/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The doctor on device nodes that are missing, forbidden or something else, and its two ways of
 * printing. Real KVM is not needed, nor asked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm/doctor.h"
#include "vmm/util.h"

#define MISSING "/nonexistent/device"

static const struct doctor_row *find_row(const struct doctor_report *report, const char *name)
{
	unsigned i;

	for (i = 0; i < report->count; i++) {
		if (!strcmp(report->rows[i].name, name))
			return &report->rows[i];
	}
	fail_msg("no row %s", name);
	return NULL;
}

/* A node of no permission at all, for a user who is not root: its path. */
struct forbidden {
	char dir[64];
	char path[80];
};

static void forbid(struct forbidden *forbidden)
{
	const char *tmp = getenv("TMPDIR");
	int fd;

	snprintf(forbidden->dir, sizeof(forbidden->dir), "%.40s/doctor.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(forbidden->dir));
	snprintf(forbidden->path, sizeof(forbidden->path), "%s/node", forbidden->dir);
	fd = open(forbidden->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0);
	assert_true(fd >= 0);
	close(fd);
	/* Root ignores modes; another effective user does not. */
	if (!geteuid())
		assert_int_equal(seteuid(65534), 0);
}

static void allow(struct forbidden *forbidden)
{
	if (!getuid())
		assert_int_equal(seteuid(0), 0);
	unlink(forbidden->path);
	rmdir(forbidden->dir);
}

static struct doctor_report collect(const char *kvm, const char *tun, const char *vhost_net)
{
	const struct doctor_paths paths = { .kvm = kvm, .tun = tun, .vhost_net = vhost_net };
	struct doctor_report report;

	doctor_collect(&report, &paths);
	return report;
}

static void test_h15_kvm_missing(void **state)
{
	struct doctor_report report = collect(MISSING, MISSING, MISSING);
	const struct doctor_row *row = find_row(&report, "kvm");

	(void)state;
	assert_false(report.kvm.present);
	assert_false(report.kvm.permitted);
	assert_int_equal(report.native, DOCTOR_UNKNOWN);
	assert_int_equal(row->state, DOCTOR_FAIL);
	assert_string_equal(row->found, MISSING " does not exist");
	assert_non_null(strstr(row->remedy, "kvm_intel"));
	assert_false(doctor_healthy(&report));
}

static void test_h15_kvm_forbidden(void **state)
{
	struct forbidden forbidden;
	struct doctor_report report;
	const struct doctor_row *row;

	(void)state;
	forbid(&forbidden);
	report = collect(forbidden.path, forbidden.path, forbidden.path);
	allow(&forbidden);
	row = find_row(&report, "kvm");
	assert_true(report.kvm.present);
	assert_false(report.kvm.permitted);
	assert_int_equal(row->state, DOCTOR_FAIL);
	assert_non_null(strstr(row->found, "permission denied"));
	assert_non_null(strstr(row->remedy, "group"));
	row = find_row(&report, "tun");
	assert_true(report.tun.present);
	assert_false(report.tun.permitted);
	assert_int_equal(row->state, DOCTOR_FAIL);
	assert_non_null(strstr(row->remedy, "666"));
	row = find_row(&report, "vhost-net");
	assert_true(report.vhost_net.present);
	assert_int_equal(row->state, DOCTOR_WARN);
	assert_non_null(strstr(row->remedy, "group"));
}

static void test_h15_not_kvm(void **state)
{
	struct doctor_report report = collect("/dev/null", "/dev/null", "/dev/null");
	const struct doctor_row *row = find_row(&report, "kvm");

	(void)state;
	assert_true(report.kvm.present);
	assert_true(report.kvm.permitted);
	assert_int_equal(report.kvm_version, 0);
	assert_int_equal(row->state, DOCTOR_FAIL);
	assert_non_null(strstr(row->found, "does not answer as KVM"));
	row = find_row(&report, "tun");
	assert_int_equal(row->state, DOCTOR_FAIL);
	assert_non_null(strstr(row->found, "does not answer as tun"));
	assert_int_equal(report.tun_offloads, -1);
}

static void test_directory(void **state)
{
	struct doctor_report report = collect("/", "/", "/");

	(void)state;
	assert_true(report.kvm.present);
	assert_false(report.kvm.permitted);
	assert_non_null(strstr(find_row(&report, "kvm")->found, "cannot be opened"));
	assert_int_equal(find_row(&report, "tun")->state, DOCTOR_FAIL);
	assert_false(report.tun.permitted);
}

/* Each way to fail reads differently. */
static void test_h15_distinct(void **state)
{
	struct doctor_report reports[] = {
		collect(MISSING, MISSING, MISSING),
		collect("/dev/null", "/dev/null", "/dev/null"),
		collect("/", "/", "/"),
	};
	size_t i, j;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(reports); i++) {
		for (j = 0; j < i; j++) {
			assert_string_not_equal(find_row(&reports[i], "kvm")->remedy,
						find_row(&reports[j], "kvm")->remedy);
			assert_string_not_equal(find_row(&reports[i], "tun")->found,
						find_row(&reports[j], "tun")->found);
		}
	}
}

static void test_host(void **state)
{
	struct doctor_report report = collect(MISSING, MISSING, "/dev/null");

	(void)state;
	assert_true(report.cpus >= 1);
	assert_true(report.memory > 0);
	assert_true(strlen(report.kernel) > 0);
	assert_true(report.open_files > 0);
	assert_true(report.vhost_net.present && report.vhost_net.permitted);
	assert_int_equal(find_row(&report, "vhost-net")->state, DOCTOR_OK);
	assert_int_equal(find_row(&report, "kernel")->state, DOCTOR_OK);
}

/* The real one, where there is one: the fields and the rows agree. */
static void test_tun(void **state)
{
	struct doctor_report report = collect(MISSING, "/dev/net/tun", MISSING);
	const struct doctor_row *row;
	unsigned i;

	(void)state;
	if (!report.tun.permitted) {
		assert_int_equal(report.tun_offloads, -1);
		assert_int_equal(report.tun_steering, DOCTOR_UNKNOWN);
		skip();
	}
	row = find_row(&report, "tun steering");
	assert_int_equal(row->state, report.tun_steering == DOCTOR_NO ? DOCTOR_WARN : DOCTOR_OK);
	row = find_row(&report, "tun offloads");
	if (report.tun_offloads < 0) {
		assert_non_null(strstr(row->found, "not known"));
		return;
	}
	assert_true(doctor_has_offload(&report, &doctor_offloads[0]));
	for (i = 0; i < doctor_offload_count; i++) {
		if (doctor_has_offload(&report, &doctor_offloads[i]))
			assert_non_null(strstr(row->found, doctor_offloads[i].name));
		else
			assert_non_null(strstr(row->remedy, doctor_offloads[i].name));
	}
}

static void test_healthy(void **state)
{
	struct doctor_report report = { .count = 0 };
	unsigned i;

	(void)state;
	doctor_row(&report, "a", DOCTOR_OK, "found", "not shown");
	doctor_row(&report, "b", DOCTOR_WARN, "found", "shown");
	assert_true(doctor_healthy(&report));
	assert_string_equal(report.rows[0].remedy, "");
	assert_string_equal(report.rows[1].remedy, "shown");
	doctor_row(&report, "c", DOCTOR_FAIL, "found", "shown");
	assert_false(doctor_healthy(&report));
	for (i = 0; i < 2 * DOCTOR_MAX_ROWS; i++)
		doctor_row(&report, "d", DOCTOR_OK, "", "");
	assert_int_equal(report.count, DOCTOR_MAX_ROWS);
}

static void test_table(void **state)
{
	struct doctor_report report = collect(MISSING, "/dev/null", MISSING);
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	(void)state;
	doctor_print(out, &report);
	fclose(out);
	assert_non_null(strstr(text, "fail  kvm "));
	assert_non_null(strstr(text, "-> load kvm_intel"));
	assert_non_null(strstr(text, "This machine cannot run guests"));
	free(text);

	report = (struct doctor_report){ .count = 0 };
	doctor_row(&report, "kvm", DOCTOR_OK, "", "");
	out = open_memstream(&text, &size);
	doctor_print(out, &report);
	fclose(out);
	assert_non_null(strstr(text, "ok    kvm"));
	assert_non_null(strstr(text, "This machine can run guests."));
	free(text);
}

static json_t *print_and_load(const struct doctor_report *report)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	json_error_t error;
	json_t *object;

	assert_int_equal(doctor_print_json(out, report), 0);
	fclose(out);
	object = json_loads(text, JSON_REJECT_DUPLICATES, &error);
	if (!object)
		fail_msg("line %d: %s in %s", error.line, error.text, text);
	free(text);
	return object;
}

static void test_json_of_nothing(void **state)
{
	struct doctor_report report = collect(MISSING, MISSING, MISSING);
	json_t *object = print_and_load(&report), *kvm, *rows, *tun;

	(void)state;
	assert_true(json_is_false(json_object_get(object, "ok")));
	kvm = json_object_get(object, "kvm");
	assert_true(json_is_false(json_object_get(kvm, "present")));
	assert_true(json_is_false(json_object_get(kvm, "permitted")));
	assert_true(json_is_null(json_object_get(kvm, "version")));
	assert_true(json_is_null(json_object_get(kvm, "native")));
	assert_true(json_is_null(json_object_get(kvm, "mips")));
	tun = json_object_get(object, "tun");
	assert_true(json_is_false(json_object_get(tun, "vnet_hdr")));
	assert_true(json_is_null(json_object_get(tun, "offloads")));
	assert_true(json_is_null(json_object_get(tun, "steering")));
	rows = json_object_get(object, "rows");
	assert_int_equal(json_array_size(rows), report.count);
	assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "status")),
			    "fail");
	json_decref(object);
}

static void test_json_of_everything(void **state)
{
	struct doctor_report report = {
		.kvm = { true, true },
		.kvm_version = 12,
		.native = DOCTOR_NO,
		.mips = 1.75,
		.tun = { true, true },
		.tun_features = 0x4000 | 0x0100, /* IFF_VNET_HDR, IFF_MULTI_QUEUE */
		/* TUN_F_CSUM, TUN_F_TSO4, only one of the two that make uso, TUN_F_UDP_TUNNEL_GSO
		 */
		.tun_offloads = 0x1 | 0x2 | 0x20 | 0x80,
		.tun_steering = DOCTOR_NO,
		.kernel = "6.1",
		.cpus = 4,
		.memory = GIB(7),
		.open_files = 1024,
		.address_space = UINT64_MAX,
	};
	json_t *object, *kvm, *tun, *limits;

	(void)state;
	doctor_row(&report, "kvm", DOCTOR_OK, "all", "");
	object = print_and_load(&report);
	assert_true(json_is_true(json_object_get(object, "ok")));
	assert_int_equal(json_integer_value(json_object_get(object, "cpus")), 4);
	assert_int_equal(json_integer_value(json_object_get(object, "memory")), GIB(7));
	kvm = json_object_get(object, "kvm");
	assert_int_equal(json_integer_value(json_object_get(kvm, "version")), 12);
	assert_true(json_is_false(json_object_get(kvm, "native")));
	assert_true(json_real_value(json_object_get(kvm, "mips")) == 1.75);
	tun = json_object_get(object, "tun");
	assert_true(json_is_true(json_object_get(tun, "vnet_hdr")));
	assert_true(json_is_true(json_object_get(tun, "multi_queue")));
	assert_int_equal(json_array_size(json_object_get(tun, "offloads")), 3);
	assert_string_equal(json_string_value(json_array_get(json_object_get(tun, "offloads"), 2)),
			    "udp_tunnel_gso");
	assert_true(json_is_false(json_object_get(tun, "steering")));
	json_decref(object);
	report.tun_offloads = 0x1ff;
	report.tun_steering = DOCTOR_YES;
	object = print_and_load(&report);
	tun = json_object_get(object, "tun");
	assert_int_equal(json_array_size(json_object_get(tun, "offloads")), doctor_offload_count);
	assert_true(json_is_true(json_object_get(tun, "steering")));
	limits = json_object_get(object, "limits");
	assert_int_equal(json_integer_value(json_object_get(limits, "open_files")), 1024);
	assert_true(json_is_null(json_object_get(limits, "address_space")));
	json_decref(object);
}

/* What cannot be written is an error. */
static void test_json_full_disk(void **state)
{
	struct doctor_report report = collect(MISSING, MISSING, MISSING);
	FILE *out = fopen("/dev/full", "we");

	(void)state;
	assert_non_null(out);
	setvbuf(out, NULL, _IONBF, 0);
	assert_true(doctor_print_json(out, &report) < 0);
	fclose(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_h15_kvm_missing), cmocka_unit_test(test_h15_kvm_forbidden),
		cmocka_unit_test(test_h15_not_kvm),	cmocka_unit_test(test_h15_distinct),
		cmocka_unit_test(test_directory),	cmocka_unit_test(test_host),
		cmocka_unit_test(test_healthy),		cmocka_unit_test(test_table),
		cmocka_unit_test(test_json_of_nothing), cmocka_unit_test(test_json_of_everything),
		cmocka_unit_test(test_json_full_disk),	cmocka_unit_test(test_tun),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
