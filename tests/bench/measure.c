/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A worker sleeps in epoll_wait() as whelp's do, on an eventfd or on a timerfd. Times are of
 * CLOCK_MONOTONIC, CPU times of the threads' own clocks: what an interrupt does on another's time
 * is not in them. Between two rounds the worker has the time to fall asleep, and its processor to
 * go idle.
 */
#include "tests/bench/measure.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "vmm/util.h"

#define SECOND	 UINT64_C(1000000000)
#define PAUSE	 UINT64_C(200000) /* ns between two kicks */
#define TIMER	 UINT64_C(100000) /* ns of a timer */
#define FRAME	 1514u
#define LOOPS	 10000u
#define SEND_MAX 20000u

static uint64_t read_clock(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static void sleep_for(uint64_t ns)
{
	struct timespec time = { .tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND) };

	clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

static int by_size(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

/* Sorts the values. */
static uint64_t part(uint64_t *values, unsigned count, unsigned percent)
{
	qsort(values, count, sizeof(*values), by_size);
	return values[(count - 1) * percent / 100];
}

/* ---- kicks ---- */

struct kicks {
	int event_fd;
	int epoll_fd;
	unsigned rounds;
	uint64_t *woken; /* when */
	uint64_t cpu;	 /* of the worker, for all rounds */
};

static void *kicked_worker(void *context)
{
	struct kicks *kicks = context;
	struct epoll_event ready;
	uint64_t value, start = read_clock(CLOCK_THREAD_CPUTIME_ID);

	for (unsigned i = 0; i < kicks->rounds; i++) {
		while (epoll_wait(kicks->epoll_fd, &ready, 1, -1) != 1)
			;
		kicks->woken[i] = read_clock(CLOCK_MONOTONIC);
		if (read(kicks->event_fd, &value, sizeof(value)) < 0)
			abort();
	}
	kicks->cpu = read_clock(CLOCK_THREAD_CPUTIME_ID) - start;
	return NULL;
}

static int open_kicks(struct kicks *kicks)
{
	struct epoll_event event = { .events = EPOLLIN };

	kicks->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	kicks->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (kicks->event_fd < 0 || kicks->epoll_fd < 0 ||
	    epoll_ctl(kicks->epoll_fd, EPOLL_CTL_ADD, kicks->event_fd, &event))
		return -errno;
	return 0;
}

/* Fills in when each kick began, and what all took of this thread's CPU. */
static int kick_all(struct kicks *kicks, uint64_t *began, uint64_t *cpu)
{
	const uint64_t one = 1;
	pthread_t thread;
	int err = -pthread_create(&thread, NULL, kicked_worker, kicks);

	if (err)
		return err;
	*cpu = 0;
	for (unsigned i = 0; i < kicks->rounds; i++) {
		uint64_t before;

		sleep_for(PAUSE);
		before = read_clock(CLOCK_THREAD_CPUTIME_ID);
		began[i] = read_clock(CLOCK_MONOTONIC);
		if (write(kicks->event_fd, &one, sizeof(one)) < 0)
			abort();
		*cpu += read_clock(CLOCK_THREAD_CPUTIME_ID) - before;
	}
	return -pthread_join(thread, NULL);
}

static int measure_kicks(struct measured *measured, unsigned rounds)
{
	struct kicks kicks = { .event_fd = -1, .epoll_fd = -1, .rounds = rounds };
	uint64_t *began = calloc(rounds, sizeof(*began)), cpu;
	int err;

	kicks.woken = calloc(rounds, sizeof(*kicks.woken));
	err = began && kicks.woken ? open_kicks(&kicks) : -ENOMEM;
	if (!err)
		err = kick_all(&kicks, began, &cpu);
	if (!err) {
		/* A kick can come before the worker is asleep again, and count as the one before.
		 */
		for (unsigned i = 0; i < rounds; i++)
			began[i] = kicks.woken[i] > began[i] ? kicks.woken[i] - began[i] : 0;
		measured->kick_writer = cpu / rounds;
		measured->costs.kick = (cpu + kicks.cpu) / rounds;
		measured->costs.kick_latency = part(began, rounds, 50);
		measured->kick_latency_p10 = part(began, rounds, 10);
		measured->kick_latency_p90 = part(began, rounds, 90);
	}
	close(kicks.event_fd);
	close(kicks.epoll_fd);
	free(kicks.woken);
	free(began);
	return err;
}

/* ---- timers ---- */

static void set_timer(int fd, uint64_t at)
{
	const struct itimerspec time = {
		.it_value = { .tv_sec = (time_t)(at / SECOND), .tv_nsec = (long)(at % SECOND) },
	};

	timerfd_settime(fd, TFD_TIMER_ABSTIME, &time, NULL);
}

static uint64_t time_setting(int fd)
{
	uint64_t far = read_clock(CLOCK_MONOTONIC) + 1000 * SECOND;
	uint64_t start = read_clock(CLOCK_THREAD_CPUTIME_ID);

	for (unsigned i = 0; i < LOOPS; i++)
		set_timer(fd, far + i);
	return (read_clock(CLOCK_THREAD_CPUTIME_ID) - start) / LOOPS;
}

static int time_sleeping(struct policy_costs *costs, int fd, int epoll_fd, unsigned rounds)
{
	uint64_t *late = calloc(rounds, sizeof(*late)), start = read_clock(CLOCK_THREAD_CPUTIME_ID);
	struct epoll_event ready;
	uint64_t value, cpu;

	if (!late)
		return -ENOMEM;
	for (unsigned i = 0; i < rounds; i++) {
		uint64_t at = read_clock(CLOCK_MONOTONIC) + TIMER;

		set_timer(fd, at);
		while (epoll_wait(epoll_fd, &ready, 1, -1) != 1)
			;
		late[i] = read_clock(CLOCK_MONOTONIC) - at;
		if (read(fd, &value, sizeof(value)) < 0)
			abort();
	}
	cpu = (read_clock(CLOCK_THREAD_CPUTIME_ID) - start) / rounds;
	costs->timer = cpu > costs->timer_set ? cpu - costs->timer_set : 0;
	costs->overshoot_min = part(late, rounds, 10);
	costs->overshoot_max = part(late, rounds, 90);
	free(late);
	return 0;
}

static int measure_timers(struct policy_costs *costs, unsigned rounds)
{
	struct epoll_event event = { .events = EPOLLIN };
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	int err = 0;

	if (fd < 0 || epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event))
		err = -errno;
	if (!err) {
		costs->timer_set = time_setting(fd);
		err = time_sleeping(costs, fd, epoll_fd, rounds);
	}
	close(fd);
	close(epoll_fd);
	return err;
}

/* ---- the rest ---- */

/* The time, and an index that another thread might write. */
static uint64_t time_looking(void)
{
	uint64_t start = read_clock(CLOCK_MONOTONIC);
	static _Atomic uint16_t shared;
	unsigned found = 0;

	for (unsigned i = 0; i < LOOPS; i++) {
		found += atomic_load_explicit(&shared, memory_order_acquire);
		found += read_clock(CLOCK_MONOTONIC) == 0;
	}
	return (read_clock(CLOCK_MONOTONIC) - start) / LOOPS + found;
}

/* A tap that is up, in a namespace of its own, so that nobody else sees what is sent. */
static int open_tap(void)
{
	struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI };
	int control, fd;

	if (unshare(CLONE_NEWNET))
		return -errno;
	fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && control >= 0 && !ioctl(fd, TUNSETIFF, &request)) {
		request.ifr_flags = IFF_UP;
		if (!ioctl(control, SIOCSIFFLAGS, &request)) {
			close(control);
			return fd;
		}
	}
	close(control);
	close(fd);
	return -EIO;
}

static uint64_t time_sending(int fd, unsigned count)
{
	/* To a host that is not there, of a protocol for experiments. */
	uint8_t frame[FRAME] = { 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5 };
	struct iovec iov[2] = { { frame, 14 }, { frame + 14, FRAME - 14 } };
	uint64_t start = read_clock(CLOCK_THREAD_CPUTIME_ID);

	for (unsigned i = 0; i < count; i++)
		if (writev(fd, iov, 2) < 0)
			return 0;
	return (read_clock(CLOCK_THREAD_CPUTIME_ID) - start) / count;
}

static void measure_sending(struct measured *measured)
{
	int fd = open_tap();

	measured->send_to = "a tap, 1514 bytes";
	measured->costs.send = fd >= 0 ? time_sending(fd, SEND_MAX) : 0;
	close(fd);
	if (measured->costs.send)
		return;
	measured->send_to = "/dev/null, and 1300 ns added for a tap, which needs root";
	fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	measured->costs.send = 1300 + time_sending(fd, SEND_MAX);
	close(fd);
}

int measure_costs(struct measured *measured, unsigned rounds)
{
	int err;

	memset(measured, 0, sizeof(*measured));
	/* As whelp's workers have it: timers as exact as they can be. */
	prctl(PR_SET_TIMERSLACK, 1UL);
	err = measure_kicks(measured, rounds);
	if (!err)
		err = measure_timers(&measured->costs, rounds);
	if (err)
		return err;
	measured->costs.look = MAX(time_looking(), UINT64_C(1));
	measure_sending(measured);
	return 0;
}
