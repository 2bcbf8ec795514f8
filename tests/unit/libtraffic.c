/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/libtraffic.h"

#include <stdlib.h>
#include <string.h>

#include "vmm/iov.h"
#include "vmm/util.h"

struct traffic traffic_start(struct vq_pair *p, uint16_t size)
{
	struct traffic t = { .pair = p, .size = size };

	pair_start_kind(p, size);
	t.memory = board_alloc(&p->board, (uint64_t)size * TRAFFIC_BYTES, 64);
	t.jobs = calloc(size, sizeof(*t.jobs));
	assert_non_null(t.jobs);
	return t;
}

void traffic_end(struct traffic *t)
{
	assert_null(t->pair->ring.error);
	assert_null(t->pair->vq.fault);
	free(t->jobs);
}

struct job *traffic_job(const struct traffic *t, unsigned number)
{
	return &t->jobs[number % t->size];
}

static uint8_t byte_of(unsigned number, unsigned i)
{
	return (uint8_t)(number * 31 + (number >> 8) * 7 + i);
}

static uint8_t *half(const struct traffic *t, unsigned number, unsigned which)
{
	return board_ptr(&t->pair->board,
			 t->memory + number % t->size * TRAFFIC_BYTES + which * TRAFFIC_HALF,
			 TRAFFIC_HALF);
}

/* Cuts `bytes` at random into at most `max` pieces, many of one byte. */
static unsigned cut(struct ring_piece *pieces, uint64_t gpa, unsigned bytes, unsigned max)
{
	unsigned n = 0;

	while (bytes) {
		unsigned len = kind_random(2) ? 1 : 1 + kind_random(bytes);

		if (n + 1 == max)
			len = bytes;
		pieces[n++] = (struct ring_piece){ gpa, len };
		gpa += len;
		bytes -= len;
	}
	return n;
}

static bool add_with(struct traffic *t, unsigned max_pieces)
{
	struct vq_pair *p = t->pair;
	struct job *job = traffic_job(t, t->added);
	uint64_t gpa = t->memory + t->added % t->size * TRAFFIC_BYTES;
	struct ring_piece pieces[2 * PAIR_PIECES];
	unsigned readable = 0, writable = 0;

	if (t->added - t->done == t->size)
		return false;
	*job = (struct job){ .number = t->added };
	if (max_pieces == 1 || kind_random(2))
		job->readable_bytes = 1 + kind_random(TRAFFIC_HALF);
	if (max_pieces > 1 && (!job->readable_bytes || kind_random(2)))
		job->writable_bytes = 1 + kind_random(TRAFFIC_HALF);
	if (job->readable_bytes)
		readable = cut(pieces, gpa, job->readable_bytes, MAX(max_pieces / 2, 1u));
	if (job->writable_bytes)
		writable = cut(pieces + readable, gpa + TRAFFIC_HALF, job->writable_bytes,
			       max_pieces / 2);
	job->pieces = readable + writable;
	for (unsigned i = 0; i < TRAFFIC_HALF; i++) {
		half(t, t->added, 0)[i] = byte_of(t->added, i);
		half(t, t->added, 1)[i] = 0x5a;
	}
	if (kind_add(p->kind, &p->ring, pieces, readable, writable, job))
		return false;
	t->added++;
	t->added_places += kind_places(p->kind, job->pieces);
	return true;
}

bool traffic_add(struct traffic *t)
{
	/* No chain is longer than the ring, in a table neither (2.7.5.3.1). */
	return add_with(t, 1 + kind_random(MIN(t->size, TRAFFIC_PIECES)));
}

bool traffic_publish(struct traffic *t)
{
	t->published = t->added;
	return ring_publish(&t->pair->ring);
}

bool traffic_pop(struct traffic *t)
{
	struct vq_pair *p = t->pair;
	struct job *job = traffic_job(t, t->popped);
	uint8_t data[TRAFFIC_HALF];
	int popped;

	popped = pair_pop(p);
	if (popped < 0)
		fail_msg("%s", p->vq.fault);
	assert_int_equal(popped, t->popped < t->published);
	if (!popped)
		return false;
	memcpy(job->iov, p->iov, sizeof(job->iov));
	job->chain = p->chain;
	job->chain.iov = job->iov;
	assert_int_equal(job->chain.readable_bytes, job->readable_bytes);
	assert_int_equal(job->chain.writable_bytes, job->writable_bytes);
	assert_int_equal(job->chain.readable + job->chain.writable, job->pieces);
	assert_int_equal(iov_read(job->iov, job->chain.readable, 0, data, TRAFFIC_HALF),
			 job->readable_bytes);
	for (unsigned i = 0; i < job->readable_bytes; i++)
		assert_int_equal(data[i], byte_of(job->number, i));
	t->popped++;
	return true;
}

void traffic_push(struct traffic *t, struct job *job)
{
	uint8_t data[TRAFFIC_HALF];

	job->written = job->writable_bytes ? kind_random(job->writable_bytes + 1) : 0;
	for (unsigned i = 0; i < job->written; i++)
		data[i] = byte_of(~job->number, i);
	assert_int_equal(iov_write(job->iov + job->chain.readable, job->chain.writable, 0, data,
				   job->written),
			 job->written);
	vq_push(&t->pair->vq, &job->chain, job->written);
	t->pushed++;
	t->used_places += kind_places(t->pair->kind, job->pieces);
}

void traffic_take(struct traffic *t, const struct job *job)
{
	const struct job *got;
	const uint8_t *data;
	uint32_t written;
	void *token;

	if (!ring_take(&t->pair->ring, &token, &written))
		fail_msg("%s", t->pair->ring.error ? t->pair->ring.error : "nothing was used");
	got = token;
	if (job)
		assert_ptr_equal(got, job);
	assert_int_equal(written, got->written);
	data = half(t, got->number, 1);
	for (unsigned i = 0; i < TRAFFIC_HALF; i++)
		assert_int_equal(data[i], i < written ? byte_of(~got->number, i) : 0x5a);
	t->done++;
}

void traffic_expect_none(struct traffic *t)
{
	uint32_t written;
	void *token;

	assert_false(ring_take(&t->pair->ring, &token, &written));
	assert_null(t->pair->ring.error);
}

void traffic_round(struct traffic *t, unsigned batch)
{
	unsigned first = t->done;

	while (batch-- && traffic_add(t))
		;
	traffic_publish(t);
	while (traffic_pop(t))
		traffic_push(t, traffic_job(t, t->popped - 1));
	traffic_expect_none(t);
	vq_publish(&t->pair->vq);
	while (t->done < t->pushed)
		traffic_take(t, traffic_job(t, first++));
	traffic_expect_none(t);
}
