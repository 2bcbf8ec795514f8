/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The mitigation policies, by tables: what happens, and what each makes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/libmitigate.h"
#include "vmm/util.h"

static void check_table(enum mitigate_kind kind, const struct row *rows, size_t count)
{
	struct table table;

	table_start(&table, &usual_config, kind);
	table_run(&table, rows, count);
}

static void test_names(void **state)
{
	static const char *const names[] = { "off", "fixed", "lguest", "window", "adaptive" };

	(void)state;
	assert_int_equal(ARRAY_SIZE(names), MITIGATE_KINDS);
	for (unsigned i = 0; i < MITIGATE_KINDS; i++)
		assert_string_equal(mitigate_name(i), names[i]);
	assert_null(mitigate_name(MITIGATE_KINDS));
	assert_null(mitigate_name((enum mitigate_kind) - 1));
}

static void test_off(void **state)
{
	static const struct row rows[] = {
		{ KICKED, 1, DRAIN },	    { DRAINED(1), 1, SLEEP }, { KICKED, 1, DRAIN },
		{ DRAINED(100), 1, SLEEP }, { KICKED, 1, DRAIN },     { DRAINED(0), 1, SLEEP },
		{ EXPIRED, 1, DRAIN },	    { DRAINED(1), 1, SLEEP },
	};

	(void)state;
	check_table(MITIGATE_OFF, rows, ARRAY_SIZE(rows));
}

static void test_fixed(void **state)
{
	static const struct row rows[] = {
		/* the ring is not touched until the timer ends */
		{ KICKED, 1 * MS, TIMED(150 * US, 192) },
		{ EXPIRED, 155 * US, DRAIN },
		{ DRAINED(7), 1, SLEEP },
		/* the next first kick starts it anew */
		{ KICKED, 1, TIMED(150 * US, 192) },
		/* a kick while it runs: now */
		{ KICKED, 20 * US, DRAIN },
		{ DRAINED(192), 1, SLEEP },
		{ KICKED, 1, TIMED(150 * US, 192) },
		{ EXPIRED, 150 * US, DRAIN },
		/* nothing there after all */
		{ DRAINED(0), 1, SLEEP },
	};

	(void)state;
	check_table(MITIGATE_FIXED, rows, ARRAY_SIZE(rows));
}

static void test_lguest(void **state)
{
	static const struct row rows[] = {
		/* at once, and then the timer, with kicks off */
		{ KICKED, 1 * MS, DRAIN },
		{ DRAINED(1), 1, TIMED(400 * US, 192) },
		{ EXPIRED, 400 * US, DRAIN },
		/* not fewer than the last time: 1 us less; and kicks are on again */
		{ DRAINED(9), 1, SLEEP },
		{ KICKED, 1, DRAIN },
		{ DRAINED(1), 1, TIMED(399 * US, 192) },
		{ EXPIRED, 399 * US, DRAIN },
		/* fewer: 10 us more */
		{ DRAINED(8), 1, SLEEP },
		{ KICKED, 1, DRAIN },
		{ DRAINED(1), 1, TIMED(400 * US, 192) },
		/* full: as at first */
		{ KICKED, 30 * US, DRAIN },
		{ DRAINED(192), 1, TIMED(400 * US, 192) },
		{ EXPIRED, 400 * US, DRAIN },
		{ DRAINED(0), 1, SLEEP },
		/* a kick for nothing starts no timer */
		{ KICKED, 1, DRAIN },
		{ DRAINED(0), 1, SLEEP },
	};
	static const struct row after[] = {
		{ EXPIRED, 1, DRAIN },
		{ DRAINED(1), 0, SLEEP },
		{ KICKED, 1, DRAIN },
		{ DRAINED(1), 0, TIMED(399 * US, 192) },
	};
	static const struct row first[] = {
		{ KICKED, 1, DRAIN },
		{ DRAINED(1), 1, TIMED(500 * US, 192) },
	};
	struct mitigate_config config = usual_config;
	struct table table;

	(void)state;
	config.latency = 400 * US;
	table_start(&table, &config, MITIGATE_LGUEST);
	table_run(&table, rows, ARRAY_SIZE(rows));
	/* the length is capped, not only what is made of it: one good timer takes 1 us off the cap
	 */
	table_start(&table, &config, MITIGATE_LGUEST);
	for (unsigned packets = 100; packets; packets--)
		table_run(&table,
			  (const struct row[]){ { EXPIRED, 1, DRAIN },
						{ DRAINED(packets), 0, SLEEP } },
			  2);
	table_run(&table, after, ARRAY_SIZE(after));
	config = usual_config;
	table_start(&table, &config, MITIGATE_LGUEST);
	table_run(&table, first, ARRAY_SIZE(first));
}

static void test_window(void **state)
{
	static const struct row rows[] = {
		/* the first after an idle time: at once, and no window */
		{ KICKED, 1 * MS, DRAIN },
		{ DRAINED(1), 1, SLEEP },
		/* 4 us apart, smoothed: the window doubles */
		{ KICKED, 4 * US, DRAIN },
		{ DRAINED(1), 0, SLEEP },
		{ KICKED, 4 * US, DRAIN },
		{ DRAINED(1), 0, SLEEP },
		{ KICKED, 4 * US, DRAIN },
		/* 22.25 us: 6 packets in 150 us, less 2 * sqrt(6) */
		{ DRAINED(1), 0, TIMED(150 * US, 2) },
		{ KICKED, 8 * US, DRAIN },
		{ DRAINED(2), 0, TIMED(150 * US, 4) },
		{ KICKED, 16 * US, DRAIN },
		/* 8.5 us: 17 packets, less 8 */
		{ DRAINED(4), 0, TIMED(150 * US, 8) },
		{ KICKED, 32 * US, DRAIN },
		/* 6.3 us: 23 less 8; it stays within what comes in the period */
		{ DRAINED(8), 0, TIMED(150 * US, 15) },
		{ KICKED, 60 * US, DRAIN },
		/* 5.1 us: 29 less 10 */
		{ DRAINED(15), 0, TIMED(150 * US, 19) },
		/* the timer ends: what had come, or a half */
		{ EXPIRED, 150 * US, DRAIN },
		{ DRAINED(3), 0, TIMED(150 * US, 3) },
		{ EXPIRED, 150 * US, DRAIN },
		{ DRAINED(0), 0, SLEEP },
	};

	(void)state;
	check_table(MITIGATE_WINDOW, rows, ARRAY_SIZE(rows));
}

/* Each time that the timer ends, the window stays small for twice as many drains. */
static void test_window_hold(void **state)
{
	const struct mitigate_sample kicked = { .event = MITIGATE_KICKED };
	const struct mitigate_sample drained = { .event = MITIGATE_DRAINED, .packets = 1 };
	const struct mitigate_sample nothing = { .event = MITIGATE_DRAINED };
	const struct mitigate_sample expired = { .event = MITIGATE_EXPIRED };
	struct mitigate_action action;
	struct table table;

	(void)state;
	table_start(&table, &usual_config, MITIGATE_WINDOW);
	for (unsigned hold = 4; hold <= 2 * 4096; hold = hold < 4096 ? 2 * hold : hold + 1000) {
		unsigned drains = 0;

		do {
			assert_true(drains < 10000);
			table_step(&table, &kicked, 4 * US);
			action = table_step(&table, &drained, 0);
			drains++;
		} while (!action.until);
		/* the first time it takes the rate to be learnt */
		assert_int_equal(drains, hold == 4 ? 4 : MIN(hold, 4096u) + 1);
		table_step(&table, &expired, 150 * US);
		assert_int_equal(table_step(&table, &nothing, 0).until, 0);
	}
}

/* Where a spin would do, or timers are too late, no timer; where the CPU is wanted by others, one
 * all the same. */
static void test_adaptive_prefers(void **state)
{
	static const struct row fast[] = {
		{ KICKED, 1 * MS, DRAIN },  { DRAINED(8), 0, SLEEP },	{ KICKED, 16 * US, DRAIN },
		{ DRAINED(8), 0, SLEEP },   { KICKED, 16 * US, DRAIN }, { DRAINED(8), 0, SLEEP },
		{ KICKED, 16 * US, DRAIN }, { DRAINED(8), 0, SLEEP },	{ KICKED, 16 * US, DRAIN },
	};
	static const struct row late[] = { { DRAINED(8), 0, SLEEP } };
	static const struct row crowded[] = { { DRAINED(8), 0, TIMED(30 * US, 192) } };
	static const struct row timed[] = { { DRAINED(8), 0, TIMED(5 * US, 192) } };
	struct mitigate_config config = usual_config;
	struct table table;

	(void)state;
	table_start(&table, &config, MITIGATE_ADAPTIVE);
	table_run(&table, fast, ARRAY_SIZE(fast));
	table_run(&table, timed, ARRAY_SIZE(timed));
	config.overshoot = 30 * US;
	table_start(&table, &config, MITIGATE_ADAPTIVE);
	table_run(&table, fast, ARRAY_SIZE(fast));
	table_run(&table, late, ARRAY_SIZE(late));
	config.crowded = true;
	table_start(&table, &config, MITIGATE_ADAPTIVE);
	table_run(&table, fast, ARRAY_SIZE(fast));
	table_run(&table, crowded, ARRAY_SIZE(crowded));
}

/* The same with a spin: after it is over, a kick. */
static void test_adaptive_spins_instead(void **state)
{
	struct mitigate_config config = usual_config;
	struct table table;
	struct mitigate_action action;

	(void)state;
	config.poll_max = 10 * US;
	for (unsigned faster = 0; faster < 2; faster++) {
		table_start(&table, &config, MITIGATE_ADAPTIVE);
		for (unsigned i = 0; i < 20; i++) {
			table_step(&table, &(struct mitigate_sample){ .event = MITIGATE_KICKED },
				   faster ? 64 * US : 100 * US);
			action = table_step(
				&table, &(struct mitigate_sample){ MITIGATE_DRAINED, 8, false }, 0);
			if (action.what == MITIGATE_SPIN)
				action = table_step(
					&table,
					&(struct mitigate_sample){ .event = MITIGATE_MISSED },
					10 * US);
		}
		/* 8 or 9.25 us are spun through, 12.5 us and more are not */
		assert_int_equal(action.until != 0, !faster);
	}
}

static void test_adaptive_without_spin(void **state)
{
	static const struct row rows[] = {
		{ KICKED, 1 * MS, DRAIN },
		/* one packet: no timer */
		{ DRAINED(1), 1, SLEEP },
		{ KICKED, 2 * US, DRAIN },
		{ DRAINED(1), 0, SLEEP },
		{ KICKED, 2 * US, DRAIN },
		/* many, but the gap is smoothed and still long */
		{ DRAINED(8), 0, SLEEP },
		{ KICKED, 8 * US, DRAIN },
		{ DRAINED(8), 0, SLEEP },
		{ KICKED, 8 * US, DRAIN },
		{ DRAINED(8), 0, SLEEP },
		{ KICKED, 8 * US, DRAIN },
		/* 16.6 us: 36 us until the packets' waits are a kick's cost, and two come by then
		 */
		{ DRAINED(8), 0, TIMED(5 * US, 192) },
		{ EXPIRED, 10 * US, DRAIN },
		/* useful: an eighth more */
		{ DRAINED(5), 0, TIMED(5626, 192) },
		{ EXPIRED, 10 * US, DRAIN },
		{ DRAINED(5), 0, TIMED(6330, 192) },
		/* full */
		{ KICKED, 3 * US, DRAIN },
		{ DRAINED(192), 0, TIMED(6330, 192) },
		/* one packet: a half, which is below the overshoot; and kicks */
		{ EXPIRED, 9 * US, DRAIN },
		{ DRAINED(1), 0, SLEEP },
		{ KICKED, 10 * US, DRAIN },
		{ DRAINED(10), 0, TIMED(5 * US, 192) },
		/* nothing: the same */
		{ EXPIRED, 9 * US, DRAIN },
		{ DRAINED(0), 0, SLEEP },
	};

	(void)state;
	check_table(MITIGATE_ADAPTIVE, rows, ARRAY_SIZE(rows));
}

/* One more packet at a time, 5 us apart, each with a kick; the answer to the last drain. */
static struct mitigate_action singles(struct table *table, unsigned count)
{
	const struct mitigate_sample kicked = { .event = MITIGATE_KICKED };
	const struct mitigate_sample drained = { .event = MITIGATE_DRAINED, .packets = 1 };
	struct mitigate_action action = { 0 };

	for (unsigned i = 0; i < count; i++) {
		assert_int_equal(action.until, 0);
		assert_int_equal(table_step(table, &kicked, 5 * US).what, MITIGATE_DRAIN);
		action = table_step(table, &drained, 0);
	}
	assert_int_equal(action.what, MITIGATE_SLEEP);
	return action;
}

static void test_adaptive_crowded(void **state)
{
	static const struct row grow[] = {
		{ KICKED, 1 * MS, DRAIN },
		{ DRAINED(1), 0, SLEEP },
		{ KICKED, 20 * US, DRAIN },
		{ DRAINED(1), 0, SPIN(5 * US) },
		{ MISSED, 5 * US, SLEEP, .preempted = true },
	};
	static const struct row gathered[] = { { EXPIRED, 10 * US, DRAIN },
					       { DRAINED(4), 0, TIMED(5626, 192) } };
	static const struct row missed[] = { { EXPIRED, 10 * US, DRAIN },
					     { DRAINED(1), 0, SLEEP } };
	struct mitigate_config config = usual_config;
	struct mitigate_action action;
	struct table table;

	(void)state;
	config.poll_max = config.kick_cost;
	/* others want the CPU: a timer is tried after 64 of them */
	table_start(&table, &config, MITIGATE_ADAPTIVE);
	table_run(&table, grow, ARRAY_SIZE(grow));
	action = singles(&table, 62);
	assert_int_equal(action.until - table.now, config.overshoot);
	table_run(&table, gathered, ARRAY_SIZE(gathered));
	/* it was wrong: twice as many until the next */
	table_start(&table, &config, MITIGATE_ADAPTIVE);
	table_run(&table, grow, ARRAY_SIZE(grow));
	singles(&table, 62);
	table_run(&table, missed, ARRAY_SIZE(missed));
	action = singles(&table, 126);
	assert_int_equal(action.until, 0);
	action = singles(&table, 1);
	assert_int_equal(action.until - table.now, config.overshoot);
	/* it is known beforehand, and there is no spin that could show it */
	config.poll_max = 0;
	config.crowded = true;
	table_start(&table, &config, MITIGATE_ADAPTIVE);
	action = singles(&table, 64);
	assert_int_equal(action.until - table.now, config.overshoot);
	/* nobody does: none is */
	config.crowded = false;
	config.poll_max = 0;
	table_start(&table, &config, MITIGATE_ADAPTIVE);
	action = singles(&table, 10000);
	assert_int_equal(action.until, 0);
}

/* A latency of 0 means no timers at all, and a period of 0 none for those who have one. */
static void test_no_timers(void **state)
{
	static const struct row rows[] = {
		{ KICKED, 1 * MS, DRAIN }, { DRAINED(8), 0, SLEEP },  { KICKED, 1, DRAIN },
		{ DRAINED(20), 0, SLEEP }, { KICKED, 1, DRAIN },      { DRAINED(20), 0, SLEEP },
		{ KICKED, 1, DRAIN },	   { DRAINED(20), 0, SLEEP }, { KICKED, 1, DRAIN },
		{ DRAINED(20), 0, SLEEP }, { KICKED, 1, DRAIN },      { DRAINED(20), 0, SLEEP },
		{ KICKED, 1, DRAIN },	   { DRAINED(20), 0, SLEEP }, { KICKED, 1, DRAIN },
		{ DRAINED(20), 0, SLEEP }, { KICKED, 1, DRAIN },      { DRAINED(20), 0, SLEEP },
		{ KICKED, 1, DRAIN },	   { DRAINED(20), 0, SLEEP },
	};
	struct mitigate_config config = usual_config;
	struct table table;

	(void)state;
	config.latency = 0;
	for (unsigned kind = 0; kind < MITIGATE_KINDS; kind++) {
		table_start(&table, &config, kind);
		table_run(&table, rows, ARRAY_SIZE(rows));
	}
	config = usual_config;
	config.period = 0;
	table_start(&table, &config, MITIGATE_FIXED);
	table_run(&table, rows, ARRAY_SIZE(rows));
	table_start(&table, &config, MITIGATE_WINDOW);
	table_run(&table, rows, ARRAY_SIZE(rows));
	/* where timers are later than the bound, adaptive has none */
	config = usual_config;
	config.overshoot = config.latency + 1;
	config.crowded = true;
	table_start(&table, &config, MITIGATE_ADAPTIVE);
	table_run(&table, rows, ARRAY_SIZE(rows));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_off),
		cmocka_unit_test(test_fixed),
		cmocka_unit_test(test_lguest),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_window_hold),
		cmocka_unit_test(test_adaptive_prefers),
		cmocka_unit_test(test_adaptive_spins_instead),
		cmocka_unit_test(test_adaptive_without_spin),
		cmocka_unit_test(test_adaptive_crowded),
		cmocka_unit_test(test_no_timers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
