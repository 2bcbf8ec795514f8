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
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "vmm/util.h"

int loop_init(struct loop *loop)
{
	struct epoll_event event = { .events = EPOLLIN };

	atomic_init(&loop->stopping, false);
	loop->again = NULL;
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

void loop_run(struct loop *loop)
{
	while (!loop_stopping(loop)) {
		struct epoll_event event = { 0 };
		struct loop_source *source;
		int ready = epoll_wait(loop->epoll_fd, &event, 1, loop->again ? 0 : -1);

		if (ready == 1) {
			source = event.data.ptr;
		} else {
			source = loop->again;
			loop->again = NULL;
		}
		if (source)
			source->ready(source, event.events);
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
		worker->call = NULL;
		pthread_cond_broadcast(&worker->answered);
	}
	pthread_mutex_unlock(&worker->lock);
}

int worker_init(struct worker *worker, const char *name, void (*begin)(struct worker *worker))
{
	int err;

	memset(worker, 0, sizeof(*worker));
	worker->begin = begin;
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
	if (worker->begin)
		worker->begin(worker);
	loop_run(&worker->loop);
	return NULL;
}

int worker_start(struct worker *worker)
{
	sigset_t all, old;
	int err;

	/* The thread inherits the mask: signals are the main thread's alone. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&worker->thread, NULL, worker_main, worker);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
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
	worker->call = &call;
	written = write(worker->calls.fd, &one, sizeof(one));
	(void)written;
	while (!call.done)
		pthread_cond_wait(&worker->answered, &worker->lock);
	pthread_mutex_unlock(&worker->lock);
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
