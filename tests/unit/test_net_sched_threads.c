/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The class in which workers are scheduled (sched=). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "tests/unit/libnet.h"
#include "vmm/util.h"

#define ANY_TIME  300u
#define MANY_CPUS 1024u /* in the guest: the host's are short */

static struct nic *make(const struct net_tuning *tuning, unsigned guest_cpus)
{
	const struct nic_config config = { .tuning = *tuning };
	struct nic *nic = nic_new(&config);

	nic->net.guest_cpus = guest_cpus;
	return nic;
}

static void up(struct nic *nic)
{
	const struct nic_setup setup = { 0 };

	nic_up(nic, &setup);
}

static void end(struct nic *nic)
{
	nic_fini(nic);
	free(nic);
}

struct look {
	const struct net_worker *worker;
	struct net_sched sched;
	int class;
};

static void look_at(void *ctx)
{
	struct look *look = ctx;

	look->sched = look->worker->sched;
	look->class = sched_getscheduler(0);
}

/* By the worker's own eyes. */
static struct look look(struct nic *nic)
{
	struct net_worker *worker = nic_pair(nic, 0)->tx.worker;
	struct look look = { .worker = worker };

	worker_call(&worker->worker, look_at, &look);
	return look;
}

static void test_classes_are_as_asked_for(void **state)
{
	static const struct {
		enum net_scheduling sched;
		int class;
	} rows[] = { { NET_SCHED_NORMAL, SCHED_OTHER }, { NET_SCHED_BATCH, SCHED_BATCH } };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct net_tuning tuning = { .mitigation = MITIGATE_ADAPTIVE,
						   .latency_usecs = ANY_TIME,
						   .sched = rows[i].sched };
		struct nic *nic = make(&tuning, MANY_CPUS);

		up(nic);
		for (unsigned k = 0; k < 200; k++)
			nic_ping(nic);
		assert_int_equal(look(nic).class, rows[i].class);
		assert_false(look(nic).sched.batch);
		end(nic);
	}
}

/* Pings until the class is, or was, that one. */
static void ping_until(struct nic *nic, int class)
{
	uint64_t gpa = nic->board.next;
	time_t until = 0;
	struct look now;

	do {
		assert_true(net_has_time(&until));
		nic_ping(nic);
		nic->board.next = gpa;
		now = look(nic);
		assert_int_equal(now.class, now.sched.batch ? SCHED_BATCH : SCHED_OTHER);
	} while (now.class != class);
}

/* Where CPUs are short it is tried, and since pings gain nothing by it, ended. */
static void test_a_class_is_tried(void **state)
{
	const struct net_tuning tuning = { .mitigation = MITIGATE_ADAPTIVE,
					   .latency_usecs = ANY_TIME,
					   .sched = NET_SCHED_AUTO };
	struct nic *nic = make(&tuning, MANY_CPUS);

	(void)state;
	up(nic);
	ping_until(nic, SCHED_BATCH);
	ping_until(nic, SCHED_OTHER);
	/* The next life begins as the first. */
	ping_until(nic, SCHED_BATCH);
	up(nic);
	assert_int_equal(look(nic).class, SCHED_OTHER);
	end(nic);
}

static void test_other_policies_try_nothing(void **state)
{
	const struct net_tuning tuning = { .mitigation = MITIGATE_OFF, .sched = NET_SCHED_AUTO };
	struct nic *nic = make(&tuning, MANY_CPUS);

	(void)state;
	up(nic);
	for (unsigned i = 0; i < 200; i++)
		nic_ping(nic);
	assert_int_equal(look(nic).class, SCHED_OTHER);
	assert_int_equal(look(nic).sched.usual.wakes, 0);
	end(nic);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_classes_are_as_asked_for),
		cmocka_unit_test(test_a_class_is_tried),
		cmocka_unit_test(test_other_policies_try_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
