/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * epoll with the source's address as user data. Stopping is a flag plus an eventfd that stays
 * readable, so a stop that comes before loop_run() is not lost, and one between batches is seen by
 * loop_stopping().
 *
 * Only one event is taken from epoll at a time: with a handful of fds per loop a larger batch saves
 * nothing, and this way a callback may remove any source, its own included, without a stale event
 * for it being left in a batch.
 */
#include "vmm/loop.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "vmm/affinity.h"
#include "vmm/util.h"

#define NS_PER_S 1000000000ull

int loop_init(struct loop *loop)
{
	struct epoll_event event = { .events = EPOLLIN };

	atomic_init(&loop->stopping, false);
	loop->again = loop->timer = NULL;
	loop->deadline = 0;
	loop->stop_fd = -1;
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll_fd < 0)
		return -errno;
	loop->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (loop->stop_fd < 0)
		return -errno;
	event.data.ptr = NULL; /* no source: the stop */
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->stop_fd, &event))
		return -errno;
	return 0;
}

void loop_fini(struct loop *loop)
{
	if (loop->stop_fd >= 0)
		close(loop->stop_fd);
	if (loop->epoll_fd >= 0)
		close(loop->epoll_fd);
	loop->stop_fd = loop->epoll_fd = -1;
}

static int control(struct loop *loop, int op, struct loop_source *source, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = source };

	return epoll_ctl(loop->epoll_fd, op, source->fd, &event) ? -errno : 0;
}

int loop_add(struct loop *loop, struct loop_source *source, uint32_t events)
{
	return control(loop, EPOLL_CTL_ADD, source, events);
}

int loop_change(struct loop *loop, struct loop_source *source, uint32_t events)
{
	return control(loop, EPOLL_CTL_MOD, source, events);
}

void loop_remove(struct loop *loop, struct loop_source *source)
{
	control(loop, EPOLL_CTL_DEL, source, 0);
}

void loop_again(struct loop *loop, struct loop_source *source)
{
	loop->again = source;
}

void loop_set_timer(struct loop *loop, struct loop_source *source, uint64_t deadline)
{
	loop->timer = source;
	loop->deadline = deadline;
}

uint64_t loop_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* Waits for `timeout` at most, NULL: for ever. */
static bool call_ready_source(struct loop *loop, const struct timespec *timeout)
{
	struct epoll_event event = { 0 };
	struct loop_source *source;

	if (epoll_pwait2(loop->epoll_fd, &event, 1, timeout, NULL) != 1)
		return false;
	source = event.data.ptr;
	if (source)
		source->ready(source, event.events);
	return true;
}

/* Also between ready sources: they might be ready for ever. */
static bool call_timer(struct loop *loop)
{
	if (!loop->deadline || loop_now() < loop->deadline)
		return false;
	loop->deadline = 0;
	loop->timer->ready(loop->timer, 0);
	return true;
}

static const struct timespec *time_to_wait(const struct loop *loop, struct timespec *time)
{
	uint64_t now, left;

	*time = (struct timespec){ 0 };
	if (loop->again)
		return time;
	if (!loop->deadline)
		return NULL;
	now = loop_now();
	left = loop->deadline > now ? loop->deadline - now : 0;
	time->tv_sec = (time_t)(left / NS_PER_S);
	time->tv_nsec = (long)(left % NS_PER_S);
	return time;
}

bool loop_poll(struct loop *loop)
{
	const struct timespec none = { 0 };
	bool called = call_ready_source(loop, &none);

	return call_timer(loop) || called;
}

void loop_run(struct loop *loop)
{
	while (!loop_stopping(loop)) {
		struct timespec time;
		struct loop_source *again;
		bool called = call_ready_source(loop, time_to_wait(loop, &time));

		if (call_timer(loop) || called)
			continue;
		again = loop->again;
		loop->again = NULL;
		if (again)
			again->ready(again, 0);
	}
}

void loop_stop(struct loop *loop)
{
	uint64_t one = 1;
	ssize_t written;

	atomic_store(&loop->stopping, true);
	/* Fails only when the counter is full, and then the loop is awake already. */
	written = write(loop->stop_fd, &one, sizeof(one));
	(void)written;
}

/* Under the lock; worker_awaited() looks without. */
static void set_call(struct worker *worker, struct worker_call *call)
{
	__atomic_store_n(&worker->call, call, __ATOMIC_RELAXED);
}

static void call_ready(struct loop_source *source, uint32_t events)
{
	struct worker *worker = container_of(source, struct worker, calls);
	uint64_t count;
	ssize_t got = read(source->fd, &count, sizeof(count));

	(void)events;
	(void)got;
	pthread_mutex_lock(&worker->lock);
	if (worker->call) {
		worker->call->run(worker->call->ctx);
		worker->call->done = true;
		set_call(worker, NULL);
		pthread_cond_broadcast(&worker->answered);
	}
	pthread_mutex_unlock(&worker->lock);
}

int worker_init(struct worker *worker, const char *name, void (*begin)(struct worker *worker))
{
	int err;

	memset(worker, 0, sizeof(*worker));
	worker->begin = begin;
	worker->cpu = -1;
	snprintf(worker->name, sizeof(worker->name), "%s", name);
	pthread_mutex_init(&worker->lock, NULL);
	pthread_cond_init(&worker->answered, NULL);
	worker->calls = (struct loop_source){ .fd = -1, .ready = call_ready };
	err = loop_init(&worker->loop);
	if (err)
		return err;
	worker->calls.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (worker->calls.fd < 0)
		return -errno;
	return loop_add(&worker->loop, &worker->calls, EPOLLIN);
}

static void *worker_main(void *arg)
{
	struct worker *worker = arg;

	prctl(PR_SET_NAME, worker->name);
	/* Its sleeps may be of some 10 us, and are late by as much as this allows (50 us by
	 * default). */
	prctl(PR_SET_TIMERSLACK, 1ul);
	if (worker->begin)
		worker->begin(worker);
	loop_run(&worker->loop);
	return NULL;
}

void worker_pin(struct worker *worker, int cpu)
{
	worker->cpu = cpu;
}

void worker_set_batch(bool on)
{
	const struct sched_param none = { 0 };
	int class = sched_getscheduler(0);

	/* Between these two needs no privilege. */
	if (class == SCHED_OTHER || class == SCHED_BATCH)
		sched_setscheduler(0, on ? SCHED_BATCH : SCHED_OTHER, &none);
}

int worker_start(struct worker *worker)
{
	pthread_attr_t attributes;
	sigset_t all, old;
	int err = pthread_attr_init(&attributes);

	if (err)
		return -err;
	err = -affinity_set(&attributes, worker->cpu);
	/* The thread inherits the mask: signals are the main thread's alone. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (!err)
		err = pthread_create(&worker->thread, &attributes, worker_main, worker);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attributes);
	worker->running = !err;
	return -err;
}

void worker_stop(struct worker *worker)
{
	if (!worker->running)
		return;
	loop_stop(&worker->loop);
	pthread_join(worker->thread, NULL);
	worker->running = false;
}

void worker_call(struct worker *worker, void (*run)(void *ctx), void *ctx)
{
	struct worker_call call = { .run = run, .ctx = ctx };
	uint64_t one = 1;
	ssize_t written;

	if (!worker->running) {
		run(ctx);
		return;
	}
	pthread_mutex_lock(&worker->lock);
	while (worker->call)
		pthread_cond_wait(&worker->answered, &worker->lock);
	set_call(worker, &call);
	written = write(worker->calls.fd, &one, sizeof(one));
	(void)written;
	while (!call.done)
		pthread_cond_wait(&worker->answered, &worker->lock);
	pthread_mutex_unlock(&worker->lock);
}

bool worker_awaited(const struct worker *worker)
{
	return loop_stopping(&worker->loop) || __atomic_load_n(&worker->call, __ATOMIC_RELAXED);
}

void worker_fini(struct worker *worker)
{
	worker_stop(worker);
	if (worker->calls.fd >= 0)
		close(worker->calls.fd);
	pthread_cond_destroy(&worker->answered);
	pthread_mutex_destroy(&worker->lock);
	loop_fini(&worker->loop);
}
