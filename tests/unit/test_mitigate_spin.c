/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The spin that all mitigation policies share: how long it may be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/libmitigate.h"
#include "vmm/util.h"

static void test_spin(void **state)
{
	static const struct row rows[] = {
		/* 40 us at most; after a long idle time: none */
		{ KICKED, 1 * MS, DRAIN },
		{ DRAINED(1), 0, SLEEP },
		/* 5 us: it grows, from an eighth of the most */
		{ KICKED, 5 * US, DRAIN },
		{ DRAINED(1), 0, SPIN(5 * US) },
		/* a hit leaves it as it is */
		{ FOUND, 4 * US, DRAIN },
		{ DRAINED(1), 0, SPIN(5 * US) },
		/* a miss that a longer one would have been spared: twice as long */
		{ MISSED, 5 * US, SLEEP },
		{ KICKED, 2 * US, DRAIN },
		{ DRAINED(1), 0, SPIN(10 * US) },
		{ MISSED, 10 * US, SLEEP },
		/* or as long as the gap, but for half of the kick's cost */
		{ KICKED, 45 * US, DRAIN },
		{ DRAINED(1), 0, SPIN(35 * US) },
		{ MISSED, 35 * US, SLEEP },
		{ KICKED, 1 * US, DRAIN },
		/* no longer than the longest */
		{ DRAINED(1), 0, SPIN(40 * US) },
		/* which was not long enough, twice */
		{ MISSED, 40 * US, SLEEP },
		{ KICKED, 1 * US, DRAIN },
		{ DRAINED(1), 0, SPIN(40 * US) },
		{ MISSED, 40 * US, SLEEP },
		{ KICKED, 1 * US, DRAIN },
		{ DRAINED(1), 0, SLEEP },
		{ KICKED, 5 * US, DRAIN },
		{ DRAINED(1), 0, SPIN(5 * US) },
		/* one that no spin would find, a hit, and one again: it stays */
		{ MISSED, 5 * US, SLEEP },
		{ KICKED, 56 * US, DRAIN },
		{ DRAINED(1), 0, SPIN(5 * US) },
		{ FOUND, 1 * US, DRAIN },
		{ DRAINED(1), 0, SPIN(5 * US) },
		{ MISSED, 5 * US, SLEEP },
		{ KICKED, 56 * US, DRAIN },
		{ DRAINED(1), 0, SPIN(5 * US) },
		{ MISSED, 5 * US, SLEEP },
		/* two in a row: none */
		{ KICKED, 56 * US, DRAIN },
		{ DRAINED(1), 0, SLEEP },
		{ KICKED, 1 * US, DRAIN },
		/* a kick for nothing: no spin now, but later */
		{ DRAINED(0), 0, SLEEP },
		{ KICKED, 1 * US, DRAIN },
		{ DRAINED(1), 0, SPIN(10 * US) },
		/* nor is it a packet from which the next gap counts */
		{ MISSED, 10 * US, SLEEP },
		{ KICKED, 80 * US, DRAIN },
		{ DRAINED(0), 0, SLEEP },
		{ KICKED, 1 * US, DRAIN },
		{ DRAINED(1), 0, SLEEP },
		{ KICKED, 9 * US, DRAIN },
		{ DRAINED(1), 0, SPIN(5 * US) },
		/* another thread wanted the CPU: none for a while */
		{ FOUND, 1 * US, DRAIN, .preempted = true },
		{ DRAINED(1), 0, SLEEP },
		{ KICKED, 5 * US, DRAIN },
		{ DRAINED(1), 0, SLEEP },
		{ KICKED, 9980 * US, DRAIN },
		{ DRAINED(1), 0, SLEEP },
		{ KICKED, 5 * US, DRAIN },
		{ DRAINED(1), 0, SLEEP },
		{ KICKED, 10 * US, DRAIN },
		{ DRAINED(1), 0, SPIN(5 * US) },
		{ MISSED, 5 * US, SLEEP, .preempted = true },
		{ KICKED, 5 * US, DRAIN },
		{ DRAINED(1), 0, SLEEP },
	};
	/* a kick because the ring is full says nothing about the first packet */
	static const struct row full[] = {
		{ KICKED, 1 * MS, TIMED(150 * US, 192) },
		{ KICKED, 20 * US, DRAIN },
		{ DRAINED(192), 0, SLEEP },
		{ KICKED, 5 * US, TIMED(150 * US, 192) },
		{ KICKED, 1 * US, DRAIN },
		{ DRAINED(192), 0, SPIN(5 * US) },
	};
	struct mitigate_config config = usual_config;
	struct table table;

	(void)state;
	config.poll_max = config.kick_cost;
	table_start(&table, &config, MITIGATE_OFF);
	table_run(&table, rows, ARRAY_SIZE(rows));
	table_start(&table, &config, MITIGATE_FIXED);
	table_run(&table, full, ARRAY_SIZE(full));
}

/* A timed sleep that gathered packets which a spin would have found. */
static void test_spin_instead_of_timer(void **state)
{
	static const struct row rows[] = {
		{ KICKED, 1 * MS, DRAIN },
		{ DRAINED(1), 0, TIMED(500 * US, 192) },
		{ EXPIRED, 500 * US, DRAIN },
		{ DRAINED(25), 0, SPIN(20 * US) },
		{ FOUND, 20 * US, DRAIN },
		{ DRAINED(1), 0, SPIN(20 * US) },
		{ MISSED, 20 * US, TIMED(499 * US, 192) },
		{ EXPIRED, 480 * US, DRAIN },
		/* none: the spin stays as it is, and so does it past one long sleep */
		{ DRAINED(0), 0, SLEEP },
		{ KICKED, 1000 * US, DRAIN },
		{ DRAINED(1), 0, SPIN(20 * US) },
		{ MISSED, 20 * US, TIMED(500 * US, 192) },
	};
	struct mitigate_config config = usual_config;
	struct table table;

	(void)state;
	config.poll_max = config.kick_cost;
	table_start(&table, &config, MITIGATE_LGUEST);
	table_run(&table, rows, ARRAY_SIZE(rows));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spin),
		cmocka_unit_test(test_spin_instead_of_timer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
