/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The event loop, and workers that run one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/driver/board.h"
#include "vmm/loop.h"
#include "vmm/util.h"

struct counter {
	struct loop_source source;
	struct loop *loop;
	unsigned calls;
	unsigned stop_at; /* stop the loop at so many calls; 0: never */
	bool remove_itself;
	uint32_t events;
	int done; /* an eventfd to raise, or -1 */
};

static void raise_fd(int fd)
{
	uint64_t one = 1;

	assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
}

static void ready(struct loop_source *source, uint32_t events)
{
	struct counter *c = container_of(source, struct counter, source);
	uint64_t value;
	ssize_t got = read(source->fd, &value, sizeof(value));

	(void)got;
	c->calls++;
	c->events = events;
	if (c->remove_itself)
		loop_remove(c->loop, source);
	if (c->calls == c->stop_at)
		loop_stop(c->loop);
	if (c->done >= 0)
		raise_fd(c->done);
}

static void counter_init(struct counter *c, struct loop *loop)
{
	*c = (struct counter){ .loop = loop, .done = -1 };
	c->source.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	c->source.ready = ready;
	assert_true(c->source.fd >= 0);
}

static void test_sources_are_called_until_the_stop(void **state)
{
	struct counter a, b;
	struct loop loop;

	(void)state;
	assert_int_equal(loop_init(&loop), 0);
	counter_init(&a, &loop);
	counter_init(&b, &loop);
	a.remove_itself = true;
	b.stop_at = 1;
	assert_int_equal(loop_add(&loop, &a.source, EPOLLIN), 0);
	raise_fd(a.source.fd);
	assert_false(loop_stopping(&loop));
	/* Each stop ends one run: a source that is ready by then waits. */
	assert_int_equal(loop_add(&loop, &b.source, EPOLLIN), 0);
	raise_fd(b.source.fd);
	loop_run(&loop);
	assert_true(loop_stopping(&loop));
	assert_int_equal(b.calls, 1);
	assert_true(a.calls <= 1);
	close(a.source.fd);
	close(b.source.fd);
	loop_fini(&loop);
}

static void test_a_stop_before_the_run_is_not_lost(void **state)
{
	struct loop loop;

	(void)state;
	assert_int_equal(loop_init(&loop), 0);
	loop_stop(&loop);
	loop_stop(&loop);
	loop_run(&loop);
	loop_fini(&loop);
	loop_fini(&loop);
}

static void test_changed_and_removed_sources(void **state)
{
	struct counter a, end;
	struct loop loop;

	(void)state;
	assert_int_equal(loop_init(&loop), 0);
	counter_init(&a, &loop);
	counter_init(&end, &loop);
	end.stop_at = 3;
	assert_int_equal(loop_add(&loop, &a.source, EPOLLIN), 0);
	assert_true(loop_add(&loop, &a.source, EPOLLIN) < 0);
	/* Always writable: it is called for that, though nothing can be read. */
	assert_int_equal(loop_change(&loop, &a.source, EPOLLOUT), 0);
	a.remove_itself = true;
	a.done = end.source.fd;
	assert_int_equal(loop_add(&loop, &end.source, EPOLLIN), 0);
	end.stop_at = 1;
	loop_run(&loop);
	assert_int_equal(a.calls, 1);
	assert_int_equal(a.events, EPOLLOUT);
	assert_true(loop_change(&loop, &a.source, EPOLLIN) < 0);
	loop_remove(&loop, &a.source);
	close(a.source.fd);
	close(end.source.fd);
	loop_fini(&loop);
}

/* ---- workers ---- */

struct job {
	struct worker worker;
	struct counter counter;
	int begun;
	char name[16];
	bool signals_blocked;
};

static void begin(struct worker *worker)
{
	struct job *job = container_of(worker, struct job, worker);
	sigset_t set;

	prctl(PR_GET_NAME, job->name);
	pthread_sigmask(SIG_SETMASK, NULL, &set);
	job->signals_blocked = sigismember(&set, SIGTERM) && sigismember(&set, SIGINT);
	raise_fd(job->begun);
}

static void job_init(struct job *job, const char *name)
{
	memset(job, 0, sizeof(*job));
	assert_int_equal(worker_init(&job->worker, name, begin), 0);
	counter_init(&job->counter, &job->worker.loop);
	job->begun = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	job->counter.done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_int_equal(loop_add(&job->worker.loop, &job->counter.source, EPOLLIN), 0);
}

static void job_fini(struct job *job)
{
	worker_fini(&job->worker);
	close(job->begun);
	close(job->counter.done);
	close(job->counter.source.fd);
}

static void wait_for(int fd)
{
	uint64_t value;

	assert_true(board_wait_fd(fd, EPOLLIN, BOARD_PATIENCE));
	assert_int_equal(read(fd, &value, sizeof(value)), sizeof(value));
}

static void test_worker_runs_its_sources(void **state)
{
	struct job job;
	sigset_t before, after;

	(void)state;
	job_init(&job, "a-very-long-worker-name");
	sigemptyset(&before);
	pthread_sigmask(SIG_SETMASK, NULL, &before);
	assert_int_equal(worker_start(&job.worker), 0);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	assert_int_equal(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
	wait_for(job.begun);
	for (unsigned i = 0; i < 100; i++) {
		raise_fd(job.counter.source.fd);
		wait_for(job.counter.done);
	}
	worker_stop(&job.worker);
	assert_int_equal(job.counter.calls, 100);
	assert_string_equal(job.name, "a-very-long-wor");
	assert_true(job.signals_blocked);
	/* It is joined: nothing is called any more. */
	raise_fd(job.counter.source.fd);
	worker_stop(&job.worker);
	assert_int_equal(job.counter.calls, 100);
	job_fini(&job);
}

static void test_workers_stop_at_any_moment(void **state)
{
	(void)state;
	for (unsigned lap = 0; lap < 200; lap++) {
		struct job job;

		job_init(&job, "w");
		assert_int_equal(worker_start(&job.worker), 0);
		for (unsigned i = 0; i < lap % 5; i++)
			raise_fd(job.counter.source.fd);
		if (lap % 3 == 0)
			wait_for(job.begun);
		worker_stop(&job.worker);
		assert_true(job.counter.calls <= lap % 5);
		job_fini(&job);
	}
}

static void test_worker_that_never_starts(void **state)
{
	struct worker worker = { .loop = { .epoll_fd = -1, .stop_fd = -1 } };

	(void)state;
	worker_fini(&worker);
	assert_int_equal(worker_init(&worker, "w", NULL), 0);
	worker_stop(&worker);
	worker_fini(&worker);
	worker_fini(&worker);
}

/* ---- work that is cut into pieces ---- */

struct pieces {
	struct loop_source source;
	struct loop *loop;
	unsigned left;
	struct counter *other; /* an fd that is ready meanwhile */
	unsigned other_at;     /* how much was left when it had its turn */
};

static void go_on(struct loop_source *source, uint32_t events)
{
	struct pieces *p = container_of(source, struct pieces, source);

	assert_int_equal(events, 0);
	if (p->other->calls && !p->other_at)
		p->other_at = p->left;
	if (p->left == 500)
		raise_fd(p->other->source.fd);
	if (--p->left)
		loop_again(p->loop, source);
	else
		loop_stop(p->loop);
}

static void test_more_work_comes_after_what_is_ready(void **state)
{
	struct pieces p = { .source = { .fd = -1, .ready = go_on }, .left = 1000 };
	struct counter other;
	struct loop loop;

	(void)state;
	assert_int_equal(loop_init(&loop), 0);
	counter_init(&other, &loop);
	assert_int_equal(loop_add(&loop, &other.source, EPOLLIN), 0);
	p.loop = &loop;
	p.other = &other;
	loop_again(&loop, &p.source);
	loop_run(&loop);
	assert_int_equal(p.left, 0);
	assert_int_equal(other.calls, 1);
	assert_int_equal(p.other_at, 499);
	close(other.source.fd);
	loop_fini(&loop);
}

/* ---- time ---- */

#define MS 1000000ull

struct alarm {
	struct loop_source source;
	struct loop *loop;
	uint64_t deadline;
	unsigned calls;
	unsigned again;	   /* sets itself so many times more */
	struct alarm *then; /* sets this one; NULL: stops the loop */
};

static void set_alarm(struct alarm *alarm, uint64_t deadline)
{
	alarm->deadline = deadline;
	loop_set_timer(alarm->loop, &alarm->source, deadline);
}

static void ring_alarm(struct loop_source *source, uint32_t events)
{
	struct alarm *alarm = container_of(source, struct alarm, source);

	assert_int_equal(events, 0);
	assert_true(loop_now() >= alarm->deadline);
	alarm->calls++;
	if (alarm->again) {
		alarm->again--;
		set_alarm(alarm, loop_now() + MS / 10);
	} else if (alarm->then) {
		set_alarm(alarm->then, loop_now() + MS);
	} else {
		loop_stop(alarm->loop);
	}
}

static struct alarm new_alarm(struct loop *loop)
{
	return (struct alarm){ .source = { .fd = -1, .ready = ring_alarm }, .loop = loop };
}

/* Nothing else is there; it may set itself anew. */
static void test_a_timer_ends_the_wait(void **state)
{
	struct loop loop;
	struct alarm alarm;

	(void)state;
	assert_int_equal(loop_init(&loop), 0);
	alarm = new_alarm(&loop);
	alarm.again = 20;
	set_alarm(&alarm, loop_now() + MS);
	loop_run(&loop);
	assert_int_equal(alarm.calls, 21);
	loop_fini(&loop);
}

/* What is ready again and again holds up no timer, nor one that was over when it was set. */
static void test_a_timer_among_what_is_always_ready(void **state)
{
	const uint64_t waits[] = { 0, 3 * MS };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(waits); i++) {
		struct counter busy;
		struct alarm alarm;
		struct loop loop;

		assert_int_equal(loop_init(&loop), 0);
		counter_init(&busy, &loop);
		assert_int_equal(loop_add(&loop, &busy.source, EPOLLOUT), 0);
		alarm = new_alarm(&loop);
		set_alarm(&alarm, waits[i] ? loop_now() + waits[i] : 1);
		loop_run(&loop);
		assert_int_equal(alarm.calls, 1);
		assert_true(busy.calls > 0);
		close(busy.source.fd);
		loop_fini(&loop);
	}
}

static void test_replaced_and_cleared_timers(void **state)
{
	struct alarm first, second, end;
	struct loop loop;

	(void)state;
	assert_int_equal(loop_init(&loop), 0);
	first = new_alarm(&loop);
	second = new_alarm(&loop);
	end = new_alarm(&loop);
	/* The second takes the first's place, though it is later. */
	second.then = &end;
	set_alarm(&first, 1);
	set_alarm(&second, loop_now() + MS);
	loop_run(&loop);
	assert_int_equal(first.calls, 0);
	assert_int_equal(second.calls, 1);
	assert_int_equal(end.calls, 1);
	loop_fini(&loop);

	/* Cleared, it is as if it had not been: only what is ready counts. */
	assert_int_equal(loop_init(&loop), 0);
	set_alarm(&first, 1);
	loop_set_timer(&loop, &first.source, 0);
	assert_false(loop_poll(&loop));
	assert_int_equal(first.calls, 0);
	loop_fini(&loop);
}

/* More work is not put off until the timer. */
static void test_more_work_does_not_wait_for_the_timer(void **state)
{
	struct pieces p = { .source = { .fd = -1, .ready = go_on }, .left = 100 };
	struct counter other;
	struct alarm alarm;
	struct loop loop;

	(void)state;
	assert_int_equal(loop_init(&loop), 0);
	counter_init(&other, &loop);
	p.loop = &loop;
	p.other = &other;
	alarm = new_alarm(&loop);
	set_alarm(&alarm, loop_now() + 3600 * 1000 * MS);
	loop_again(&loop, &p.source);
	loop_run(&loop);
	assert_int_equal(p.left, 0);
	assert_int_equal(alarm.calls, 0);
	close(other.source.fd);
	loop_fini(&loop);
}

static void test_poll_calls_what_is_ready(void **state)
{
	struct counter a, b;
	struct alarm alarm;
	struct loop loop;

	(void)state;
	assert_int_equal(loop_init(&loop), 0);
	counter_init(&a, &loop);
	counter_init(&b, &loop);
	assert_int_equal(loop_add(&loop, &a.source, EPOLLIN), 0);
	assert_int_equal(loop_add(&loop, &b.source, EPOLLIN), 0);
	assert_false(loop_poll(&loop));
	raise_fd(a.source.fd);
	raise_fd(b.source.fd);
	assert_true(loop_poll(&loop));
	assert_int_equal(a.calls + b.calls, 1);
	assert_true(loop_poll(&loop));
	assert_int_equal(a.calls, 1);
	assert_int_equal(b.calls, 1);
	assert_false(loop_poll(&loop));
	/* And the timer, when it is time. */
	alarm = new_alarm(&loop);
	alarm.then = &alarm;
	set_alarm(&alarm, loop_now() + 3600 * 1000 * MS);
	assert_false(loop_poll(&loop));
	set_alarm(&alarm, loop_now());
	assert_true(loop_poll(&loop));
	assert_int_equal(alarm.calls, 1);
	close(a.source.fd);
	close(b.source.fd);
	loop_fini(&loop);
}

/* ---- calls ---- */

struct caller {
	struct worker *worker;
	unsigned *sum; /* the worker's alone */
	pthread_t thread;
};

static void add_one(void *ctx)
{
	struct caller *caller = ctx;

	if (caller->worker->running)
		assert_true(pthread_equal(pthread_self(), caller->worker->thread));
	++*caller->sum;
}

static void *caller_main(void *arg)
{
	struct caller *caller = arg;

	for (unsigned i = 0; i < 500; i++)
		worker_call(caller->worker, add_one, caller);
	return NULL;
}

static void test_calls_of_several_threads_take_turns(void **state)
{
	struct caller callers[4];
	struct worker worker;
	unsigned sum = 0;

	(void)state;
	assert_int_equal(worker_init(&worker, "w", NULL), 0);
	/* On one that does not run, it is the caller who does it. */
	worker_call(&worker, add_one, &(struct caller){ .worker = &worker, .sum = &sum });
	assert_int_equal(sum, 1);
	assert_int_equal(worker_start(&worker), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(callers); i++) {
		callers[i] = (struct caller){ .worker = &worker, .sum = &sum };
		assert_int_equal(pthread_create(&callers[i].thread, NULL, caller_main, &callers[i]),
				 0);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(callers); i++)
		pthread_join(callers[i].thread, NULL);
	worker_stop(&worker);
	assert_int_equal(sum, 1 + 500 * ARRAY_SIZE(callers));
	worker_fini(&worker);
}

static void nothing(int number)
{
	(void)number;
}

static void *interrupt_main(void *arg)
{
	pthread_t target = *(pthread_t *)arg;

	for (unsigned i = 0; i < 500; i++)
		pthread_kill(target, SIGUSR1);
	return NULL;
}

/* H12: signals that mean nothing have no effect. */
static void test_h12_signals_do_not_end_the_loop(void **state)
{
	struct sigaction action = { .sa_handler = nothing }, old;
	struct counter c;
	struct loop loop;
	pthread_t self = pthread_self(), thread;

	(void)state;
	assert_int_equal(sigaction(SIGUSR1, &action, &old), 0);
	assert_int_equal(loop_init(&loop), 0);
	counter_init(&c, &loop);
	c.stop_at = 1;
	assert_int_equal(loop_add(&loop, &c.source, EPOLLIN), 0);
	assert_int_equal(pthread_create(&thread, NULL, interrupt_main, &self), 0);
	raise_fd(c.source.fd);
	loop_run(&loop);
	pthread_join(thread, NULL);
	assert_int_equal(c.calls, 1);
	sigaction(SIGUSR1, &old, NULL);
	close(c.source.fd);
	loop_fini(&loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sources_are_called_until_the_stop),
		cmocka_unit_test(test_a_stop_before_the_run_is_not_lost),
		cmocka_unit_test(test_changed_and_removed_sources),
		cmocka_unit_test(test_worker_runs_its_sources),
		cmocka_unit_test(test_workers_stop_at_any_moment),
		cmocka_unit_test(test_worker_that_never_starts),
		cmocka_unit_test(test_more_work_comes_after_what_is_ready),
		cmocka_unit_test(test_calls_of_several_threads_take_turns),
		cmocka_unit_test(test_a_timer_ends_the_wait),
		cmocka_unit_test(test_a_timer_among_what_is_always_ready),
		cmocka_unit_test(test_replaced_and_cleared_timers),
		cmocka_unit_test(test_more_work_does_not_wait_for_the_timer),
		cmocka_unit_test(test_poll_calls_what_is_ready),
		cmocka_unit_test(test_h12_signals_do_not_end_the_loop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
