/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Two threads wake each other by eventfds in turn, as a kick wakes a worker: half of a round trip
 * is a wake-up. The median keeps a busy host's odd ones out; the timer's lateness is taken as the
 * median, too, since a policy that waits for the worst of it would hardly ever use a timer.
 */
#include "devices/virtio/net_costs.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "vmm/loop.h"

#define ROUNDS		9u
#define USUAL_KICK	20000u /* ns */
#define USUAL_OVERSHOOT 60000u
#define SHORT_SLEEP	20000u

struct echo {
	int to;
	int from;
	uint64_t overshoot[ROUNDS];
};

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t median(uint64_t *values)
{
	qsort(values, ROUNDS, sizeof(*values), compare);
	return values[ROUNDS / 2];
}

/*
 * How late a sleep in epoll ends, with a worker's timer slack; on a thread of its own, whose slack
 * it is.
 */
static void time_sleeps(uint64_t *late)
{
	const struct timespec sleep = { .tv_nsec = SHORT_SLEEP };
	int fd = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event;

	prctl(PR_SET_TIMERSLACK, 1ul);
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t start = loop_now();

		late[i] = USUAL_OVERSHOOT;
		if (fd >= 0 && !epoll_pwait2(fd, &event, 1, &sleep, NULL))
			late[i] = loop_now() - start - SHORT_SLEEP;
	}
	if (fd >= 0)
		close(fd);
}

static void *echo_main(void *arg)
{
	struct echo *echo = arg;
	eventfd_t count;

	time_sleeps(echo->overshoot);
	for (unsigned i = 0; i <= ROUNDS; i++)
		if (eventfd_read(echo->to, &count) || eventfd_write(echo->from, 1))
			break;
	return NULL;
}

static void time_wakeups(const struct echo *echo, uint64_t *trips)
{
	eventfd_t count;

	/* The first one waits for the other thread to be there. */
	for (unsigned i = 0; i <= ROUNDS; i++) {
		uint64_t start = loop_now();

		eventfd_write(echo->to, 1);
		eventfd_read(echo->from, &count);
		if (i)
			trips[i - 1] = loop_now() - start;
	}
}

void net_costs_measure(struct net_costs *costs)
{
	struct echo echo = { .to = eventfd(0, EFD_CLOEXEC), .from = eventfd(0, EFD_CLOEXEC) };
	uint64_t trips[ROUNDS];
	sigset_t all, old;
	pthread_t thread;

	/* One that ends a read, as that which stops a vCPU does, would put the two out of step. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	*costs = (struct net_costs){ .kick = USUAL_KICK, .overshoot = USUAL_OVERSHOOT };
	if (echo.to >= 0 && echo.from >= 0 && !pthread_create(&thread, NULL, echo_main, &echo)) {
		time_wakeups(&echo, trips);
		pthread_join(thread, NULL);
		costs->kick = median(trips) / 2;
		costs->overshoot = median(echo.overshoot);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (echo.to >= 0)
		close(echo.to);
	if (echo.from >= 0)
		close(echo.from);
}
