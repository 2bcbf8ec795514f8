/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the host takes for a kick and a timer, measured. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "devices/virtio/net_costs.h"
#include "tests/driver/board.h"

static void nothing(int number)
{
	(void)number;
}

static void *measure_main(void *arg)
{
	struct net_costs costs;

	for (unsigned i = 0; i < 20; i++) {
		net_costs_measure(&costs);
		assert_true(costs.kick > 0);
	}
	atomic_store((atomic_bool *)arg, true);
	return NULL;
}

/* It is a vCPU's thread that measures, and a signal is what stops it: no reason not to end. */
static void test_h13_costs_are_measured_under_signals(void **state)
{
	struct sigaction action = { .sa_handler = nothing }, old;
	atomic_bool done = false;
	pthread_t thread;
	time_t until = time(NULL) + BOARD_PATIENCE / 1000;

	(void)state;
	assert_int_equal(sigaction(SIGUSR1, &action, &old), 0);
	assert_int_equal(pthread_create(&thread, NULL, measure_main, &done), 0);
	while (!atomic_load(&done)) {
		if (time(NULL) > until)
			fail_msg("it does not end");
		pthread_kill(thread, SIGUSR1);
		sched_yield();
	}
	pthread_join(thread, NULL);
	sigaction(SIGUSR1, &old, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_h13_costs_are_measured_under_signals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
