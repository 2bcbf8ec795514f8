/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/libmitigate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

const struct mitigate_config usual_config = {
	.period = 150 * US,
	.latency = 500 * US,
	.kick_cost = 40 * US,
	.overshoot = 5 * US,
	.ring = 256,
};

void table_start(struct table *table, const struct mitigate_config *config, enum mitigate_kind kind)
{
	memset(table, 0xee, sizeof(*table));
	table->config = *config;
	table->config.kind = kind;
	table->now = 1000 * MS;
	mitigate_init(&table->config, &table->state);
}

struct mitigate_action table_step(struct table *table, const struct mitigate_sample *sample,
				  uint64_t later)
{
	table->now += later;
	return mitigate_step(&table->config, &table->state, sample, table->now);
}

void table_run(struct table *table, const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct row *row = &rows[i];
		const struct mitigate_sample sample = { row->event, row->packets, row->preempted };
		struct mitigate_action action = table_step(table, &sample, row->later);
		uint64_t length = action.until ? action.until - table->now : 0;

		if (action.what == row->what && length == row->length &&
		    action.kick_at == row->kick_at)
			continue;
		print_error(
			"%s, row %zu: %d for %llu ns, kick at %u; not %d for %llu ns, kick at %u\n",
			mitigate_name(table->config.kind), i, action.what,
			(unsigned long long)length, action.kick_at, row->what,
			(unsigned long long)row->length, row->kick_at);
		fail();
	}
}
