/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vmm/machine_stats.h"

#include <string.h>
#include <unistd.h>

#include "devices/virtio/net_stats.h"
#include "vmm/clock.h"
#include "vmm/json_file.h"
#include "vmm/log.h"

static json_t *cpus_json(const struct guest *g)
{
	json_t *cpus = json_array();

	for (unsigned i = 0; i < g->vcpu_count; i++)
		json_array_append_new(cpus, vcpu_stats_json(&g->vcpus[i]));
	return cpus;
}

static json_t *nics_json(const struct guest *g)
{
	json_t *nics = json_array();

	/* Fewer than were asked for only when building failed half way. */
	for (unsigned i = 0; i < OPTIONS_MAX_NETS && g->nics[i]; i++)
		json_array_append_new(nics, net_stats_json(&g->nics[i]->net));
	return nics;
}

json_t *machine_stats_json(const struct machine_stats *stats)
{
	double now = clock_seconds();

	return json_pack("{s:s, s:I, s:f, s:f, s:i, s:o, s:o}", "machine", stats->name, "pid",
			 (json_int_t)getpid(), "time", now, "up", now - stats->started, "boots",
			 (int)stats->boots, "cpus", cpus_json(stats->guest), "nics",
			 nics_json(stats->guest));
}

void machine_stats_write(const struct machine_stats *stats, const char *path)
{
	json_t *root = machine_stats_json(stats);
	int err = json_file_write(path, root);

	json_decref(root);
	if (err)
		log_warn("--stats %s: cannot be written: %s", path, strerror(-err));
}
