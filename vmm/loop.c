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

int loop_init(struct loop *loop)
{
	struct epoll_event event = { .events = EPOLLIN };

	atomic_init(&loop->stopping, false);
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

void loop_run(struct loop *loop)
{
	while (!loop_stopping(loop)) {
		struct epoll_event event;
		struct loop_source *source;

		if (epoll_wait(loop->epoll_fd, &event, 1, -1) != 1)
			continue;
		source = event.data.ptr;
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

int worker_init(struct worker *worker, const char *name, void (*begin)(struct worker *worker))
{
	memset(worker, 0, sizeof(*worker));
	worker->begin = begin;
	snprintf(worker->name, sizeof(worker->name), "%s", name);
	return loop_init(&worker->loop);
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

void worker_fini(struct worker *worker)
{
	worker_stop(worker);
	loop_fini(&worker->loop);
}
