/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What is to be compared with: a thread that calls writev or readv for each frame of a burst, with
 * the same buffers, and does nothing else. It is woken, and tells that it is through, by eventfds,
 * as the device is and does.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/bench/subject.h"
#include "vmm/util.h"

struct bare_pair {
	struct bare *bare;
	unsigned index;
	pthread_t thread;
	int go; /* eventfds */
	int done;
	struct iovec *iov; /* of all frames */
	unsigned failed;   /* frames that were cut or not taken */
};

struct bare {
	struct subject subject;
	struct bare_pair pairs[BENCH_MAX_PAIRS];
	bool stopping;
};

static struct bare *to_bare(struct subject *subject)
{
	return container_of(subject, struct bare, subject);
}

static void move_frames(struct bare_pair *p)
{
	const struct subject *s = &p->bare->subject;
	struct gauge *gauge = &s->wire->gauges[p->index];
	const ssize_t packet = s->wire->packets[p->index].len;
	int fd = s->wire->fds[p->index];
	bool rx = s->bench->rx;

	for (unsigned i = 0; i < s->burst; i++) {
		const struct iovec *iov = &p->iov[i * s->buffers];
		ssize_t n = rx ? readv(fd, iov, (int)s->buffers) : writev(fd, iov, (int)s->buffers);

		p->failed += n != packet;
		gauge_frames(gauge, 1);
	}
}

static void *bare_main(void *arg)
{
	struct bare_pair *p = arg;
	uint64_t count;

	while (read(p->go, &count, sizeof(count)) == sizeof(count) && !p->bare->stopping) {
		move_frames(p);
		count = 1;
		if (write(p->done, &count, sizeof(count)) < 0)
			break;
	}
	return NULL;
}

static void describe(struct bare_pair *p)
{
	struct subject *s = &p->bare->subject;

	p->iov = calloc((size_t)s->burst * s->buffers, sizeof(*p->iov));
	if (!p->iov)
		bench_die("out of memory");
	for (unsigned i = 0; i < s->burst * s->buffers; i++) {
		uint32_t len;
		uint64_t at = subject_buffer(s, p->index, i / s->buffers, i % s->buffers, &len);

		p->iov[i] = (struct iovec){ board_ptr(&s->board, at, len), len };
	}
}

static void bare_start(struct subject *subject)
{
	struct bare *bare = to_bare(subject);

	wire_prepare_bare(subject->wire);
	for (unsigned i = 0; i < subject->bench->pairs; i++) {
		struct bare_pair *p = &bare->pairs[i];

		*p = (struct bare_pair){ .bare = bare, .index = i };
		p->go = eventfd(0, EFD_CLOEXEC);
		p->done = eventfd(0, EFD_CLOEXEC);
		describe(p);
		if (p->go < 0 || p->done < 0 || pthread_create(&p->thread, NULL, bare_main, p))
			bench_die("cannot start a thread: %s", strerror(errno));
	}
}

static void tell(int fd)
{
	const uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) < 0)
		bench_die("an eventfd fails: %s", strerror(errno));
}

static void bare_stop(struct subject *subject)
{
	struct bare *bare = to_bare(subject);

	/* Partner: the threads' read of their eventfds, which are written after this. */
	bare->stopping = true;
	for (unsigned i = 0; i < subject->bench->pairs; i++) {
		tell(bare->pairs[i].go);
		pthread_join(bare->pairs[i].thread, NULL);
		close(bare->pairs[i].go);
		close(bare->pairs[i].done);
		free(bare->pairs[i].iov);
	}
	board_fini(&subject->board);
	free(bare);
}

static void bare_prepare(struct subject *subject, unsigned pair)
{
	(void)subject;
	(void)pair;
}

static void bare_go(struct subject *subject, unsigned pair)
{
	tell(to_bare(subject)->pairs[pair].go);
}

static void bare_wait(struct subject *subject, unsigned pair)
{
	struct bare_pair *p = &to_bare(subject)->pairs[pair];
	uint64_t count;

	if (!board_wait_fd(p->done, POLLIN, BENCH_PATIENCE) ||
	    read(p->done, &count, sizeof(count)) != sizeof(count))
		bench_die("the bare loop does not come to its end");
	if (p->failed)
		bench_die("%u frames of the bare loop were cut or not taken", p->failed);
}

static const struct subject_ops bare_ops = {
	.start = bare_start,
	.stop = bare_stop,
	.prepare = bare_prepare,
	.go = bare_go,
	.wait = bare_wait,
};

struct subject *bare_new(void)
{
	struct bare *bare = calloc(1, sizeof(*bare));

	if (!bare)
		bench_die("out of memory");
	bare->subject.ops = &bare_ops;
	board_init(&bare->subject.board);
	return &bare->subject;
}
