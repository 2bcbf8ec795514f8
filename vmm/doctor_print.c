/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A report as a table for people and as one JSON object for programs. The object's fields are there
 * in every case: what is not known or not limited is null.
 */
#include <errno.h>
#include <jansson.h>
#include <linux/if_tun.h>
#include <net/if.h>

#include "vmm/doctor.h"
#include "vmm/util.h"

static const char *const state_names[] = {
	[DOCTOR_OK] = "ok",
	[DOCTOR_WARN] = "warn",
	[DOCTOR_FAIL] = "fail",
};

void doctor_print(FILE *out, const struct doctor_report *report)
{
	unsigned i;

	for (i = 0; i < report->count; i++) {
		const struct doctor_row *row = &report->rows[i];

		fprintf(out, "%-4s  %-20s  %s\n", state_names[row->state], row->name, row->found);
		if (*row->remedy)
			fprintf(out, "%-4s  %-20s  -> %s\n", "", "", row->remedy);
	}
	fprintf(out, "\n%s\n",
		doctor_healthy(report)
			? "This machine can run guests."
			: "This machine cannot run guests as it is: see each \"fail\".");
}

static json_t *json_device(const struct doctor_device *device)
{
	return json_pack("{s:b, s:b}", "present", device->present, "permitted", device->permitted);
}

static json_t *json_kvm(const struct doctor_report *report)
{
	json_t *kvm = json_device(&report->kvm);
	json_t *native = report->native == DOCTOR_UNKNOWN
				 ? json_null()
				 : json_boolean(report->native == DOCTOR_YES);
	bool measured = report->native != DOCTOR_UNKNOWN;

	json_object_set_new(kvm, "version",
			    report->kvm_version ? json_integer(report->kvm_version) : json_null());
	json_object_set_new(kvm, "native", native);
	json_object_set_new(kvm, "mips", measured ? json_real(report->mips) : json_null());
	return kvm;
}

static json_t *json_tun(const struct doctor_report *report)
{
	json_t *tun = json_device(&report->tun), *list = json_null();
	json_t *steering = report->tun_steering == DOCTOR_UNKNOWN
				   ? json_null()
				   : json_boolean(report->tun_steering == DOCTOR_YES);
	unsigned i;

	if (report->tun_offloads >= 0) {
		list = json_array();
		for (i = 0; i < doctor_offload_count; i++) {
			if (doctor_has_offload(report, &doctor_offloads[i]))
				json_array_append_new(list, json_string(doctor_offloads[i].name));
		}
	}
	json_object_set_new(tun, "vnet_hdr", json_boolean(report->tun_features & IFF_VNET_HDR));
	json_object_set_new(tun, "multi_queue",
			    json_boolean(report->tun_features & IFF_MULTI_QUEUE));
	json_object_set_new(tun, "offloads", list);
	json_object_set_new(tun, "steering", steering);
	return tun;
}

static json_t *json_limit(uint64_t limit)
{
	return limit > INT64_MAX ? json_null() : json_integer((json_int_t)limit);
}

static json_t *json_limits(const struct doctor_report *report)
{
	return json_pack("{s:o, s:o, s:o, s:o}", "open_files", json_limit(report->open_files),
			 "processes", json_limit(report->processes), "address_space",
			 json_limit(report->address_space), "locked_memory",
			 json_limit(report->locked_memory));
}

static json_t *json_rows(const struct doctor_report *report)
{
	json_t *rows = json_array();
	unsigned i;

	for (i = 0; i < report->count; i++) {
		const struct doctor_row *row = &report->rows[i];

		json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:s}", "name", row->name,
						      "status", state_names[row->state], "found",
						      row->found, "remedy", row->remedy));
	}
	return rows;
}

int doctor_print_json(FILE *out, const struct doctor_report *report)
{
	json_t *object;
	int err;

	/* Values that could not be made are NULL, which fails the packing as a whole. */
	object = json_pack("{s:b, s:o, s:o, s:o, s:s, s:i, s:I, s:o, s:o}", "ok",
			   doctor_healthy(report), "kvm", json_kvm(report), "tun", json_tun(report),
			   "vhost_net", json_device(&report->vhost_net), "kernel", report->kernel,
			   "cpus", (int)report->cpus, "memory", (json_int_t)report->memory,
			   "limits", json_limits(report), "rows", json_rows(report));
	if (!object)
		return -ENOMEM;
	err = json_dumpf(object, out, JSON_INDENT(2) | JSON_REAL_PRECISION(4)) ? -EIO : 0;
	json_decref(object);
	fputc('\n', out);
	return err;
}
