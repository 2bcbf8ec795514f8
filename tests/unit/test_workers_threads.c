/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Workers: one that spins in a callback, and which host CPUs they run on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/driver/board.h"
#include "vmm/affinity.h"
#include "vmm/loop.h"
#include "vmm/util.h"

/* ---- a worker that spins, as a NIC's does ---- */

struct spinner {
	struct worker worker;
	struct loop_source source;
	atomic_uint turns;
	atomic_bool enough;
	unsigned sum;
};

static void turn(struct loop_source *source, uint32_t events)
{
	struct spinner *s = container_of(source, struct spinner, source);

	(void)events;
	while (!atomic_load(&s->enough) && !loop_stopping(&s->worker.loop)) {
		loop_poll(&s->worker.loop);
		atomic_fetch_add(&s->turns, 1);
	}
}

static void begin_to_spin(struct worker *worker)
{
	struct spinner *s = container_of(worker, struct spinner, worker);

	loop_again(&worker->loop, &s->source);
}

static void note_turn(void *ctx)
{
	struct spinner *s = ctx;

	/* It is this call that it was awaited for. */
	assert_true(worker_awaited(&s->worker));
	s->sum++;
}

/* Whoever waits for it is seen, is answered in the middle of it, and then nobody waits any more. */
static void test_a_worker_that_spins_is_awaited(void **state)
{
	struct spinner s = { .source = { .fd = -1, .ready = turn } };

	(void)state;
	assert_int_equal(worker_init(&s.worker, "spinner", begin_to_spin), 0);
	assert_false(worker_awaited(&s.worker));
	assert_int_equal(worker_start(&s.worker), 0);
	for (unsigned i = 0; i < 200; i++)
		worker_call(&s.worker, note_turn, &s);
	/* It goes on spinning until it is stopped. */
	atomic_store(&s.turns, 0);
	while (!atomic_load(&s.turns))
		sched_yield();
	worker_stop(&s.worker);
	assert_int_equal(s.sum, 200);
	assert_true(worker_awaited(&s.worker));
	worker_fini(&s.worker);
}

/* ---- host CPUs ---- */

struct pinned {
	struct worker worker;
	int begun;
	cpu_set_t cpus;
};

static void note_cpus(struct worker *worker)
{
	struct pinned *p = container_of(worker, struct pinned, worker);

	assert_int_equal(sched_getaffinity(0, sizeof(p->cpus), &p->cpus), 0);
	assert_int_equal(eventfd_write(p->begun, 1), 0);
}

/* The CPUs on which a worker runs that was told to run on `cpu`. */
static cpu_set_t cpus_of_worker(int cpu)
{
	struct pinned p = { .begun = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };

	assert_int_equal(worker_init(&p.worker, "pinned", note_cpus), 0);
	worker_pin(&p.worker, cpu);
	assert_int_equal(worker_start(&p.worker), 0);
	assert_true(board_wait_fd(p.begun, EPOLLIN, BOARD_PATIENCE));
	worker_fini(&p.worker);
	close(p.begun);
	return p.cpus;
}

static void *check_cpus(void *arg)
{
	const cpu_set_t *all = arg;
	cpu_set_t got, own;

	got = cpus_of_worker(-1);
	assert_true(CPU_EQUAL(&got, all));
	assert_int_equal(affinity_cpus(), CPU_COUNT(all));
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, all))
			continue;
		got = cpus_of_worker(cpu);
		CPU_ZERO(&own);
		CPU_SET(cpu, &own);
		assert_true(CPU_EQUAL(&got, &own));
	}
	return NULL;
}

/* On one CPU, or on all that the process has, also when it is a pinned thread that starts it. */
static void test_workers_on_chosen_cpus(void **state)
{
	pthread_attr_t attributes;
	pthread_t thread;
	cpu_set_t all;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	check_cpus(&all);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all))
			continue;
		assert_int_equal(pthread_attr_init(&attributes), 0);
		assert_int_equal(affinity_set(&attributes, cpu), 0);
		assert_int_equal(pthread_create(&thread, &attributes, check_cpus, &all), 0);
		pthread_join(thread, NULL);
		pthread_attr_destroy(&attributes);
	}
}

static void run_here(void *ctx)
{
	*(pthread_t *)ctx = pthread_self();
}

/* It does not start, and is as one that was not. */
static void test_a_cpu_that_is_not_there(void **state)
{
	const int none[] = { CPU_SETSIZE - 1, CPU_SETSIZE, 65535 };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(none); i++) {
		struct worker worker;
		pthread_t by = { 0 };

		assert_int_equal(worker_init(&worker, "w", NULL), 0);
		worker_pin(&worker, none[i]);
		assert_int_equal(worker_start(&worker), -EINVAL);
		worker_call(&worker, run_here, &by);
		assert_true(pthread_equal(by, pthread_self()));
		worker_fini(&worker);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_worker_that_spins_is_awaited),
		cmocka_unit_test(test_workers_on_chosen_cpus),
		cmocka_unit_test(test_a_cpu_that_is_not_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
